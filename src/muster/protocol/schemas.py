"""Kafka 4.3's requests and responses, as text in the notation of `muster.codec.layouts`.

A message is parsed when it is first needed: a server that starts need not parse 700 lines.
"""

from functools import cache

# The start of a connection: which versions the broker speaks, and SASL.

SESSIONS = """
ApiVersionsRequest 0-4 flexible 3+
  clientSoftwareName string 3+
  clientSoftwareVersion string 3+

ApiVersionsResponse 0-4 flexible 3+
  errorCode int16
  apiKeys []struct
    apiKey int16
    minVersion int16
    maxVersion int16
  throttleTimeMs int32 1+
  supportedFeatures []struct 3+ #0
    name string
    minVersion int16
    maxVersion int16
  finalizedFeaturesEpoch int64 3+ #1 =-1
  finalizedFeatures []struct 3+ #2
    name string
    maxVersionLevel int16
    minVersionLevel int16
  zkMigrationReady bool 3+ #3

SaslHandshakeRequest 0-1 flexible none
  mechanism string

SaslHandshakeResponse 0-1 flexible none
  errorCode int16
  mechanisms []string

SaslAuthenticateRequest 0-2 flexible 2+
  authBytes bytes

SaslAuthenticateResponse 0-2 flexible 2+
  errorCode int16
  errorMessage string ?
  authBytes bytes
  sessionLifetimeMs int64 1+
"""

# Group membership, and groups seen from outside.

GROUPS = """
FindCoordinatorRequest 0-6 flexible 3+
  key string 0-3
  keyType int8 1+
  coordinatorKeys []string 4+

FindCoordinatorResponse 0-6 flexible 3+
  throttleTimeMs int32 1+
  errorCode int16 0-3
  errorMessage string 1-3 ?
  nodeId int32 0-3
  host string 0-3
  port int32 0-3
  coordinators []struct 4+
    key string
    nodeId int32
    host string
    port int32
    errorCode int16
    errorMessage string ?

JoinGroupRequest 0-9 flexible 6+
  groupId string
  sessionTimeoutMs int32
  rebalanceTimeoutMs int32 1+ =-1
  memberId string
  groupInstanceId string 5+ ? =null
  protocolType string
  protocols []struct
    name string
    metadata bytes
  reason string 8+ ? =null

JoinGroupResponse 0-9 flexible 6+
  throttleTimeMs int32 2+
  errorCode int16
  generationId int32 =-1
  protocolType string 7+ ? =null
  protocolName string ?7+
  leader string
  skipAssignment bool 9+
  memberId string
  members []struct
    memberId string
    groupInstanceId string 5+ ? =null
    metadata bytes

HeartbeatRequest 0-4 flexible 4+
  groupId string
  generationId int32
  memberId string
  groupInstanceId string 3+ ? =null

HeartbeatResponse 0-4 flexible 4+
  throttleTimeMs int32 1+
  errorCode int16

LeaveGroupRequest 0-5 flexible 4+
  groupId string
  memberId string 0-2
  members []struct 3+
    memberId string
    groupInstanceId string ? =null
    reason string 5+ ? =null

LeaveGroupResponse 0-5 flexible 4+
  throttleTimeMs int32 1+
  errorCode int16
  members []struct 3+
    memberId string
    groupInstanceId string ?
    errorCode int16

SyncGroupRequest 0-5 flexible 4+
  groupId string
  generationId int32
  memberId string
  groupInstanceId string 3+ ? =null
  protocolType string 5+ ? =null
  protocolName string 5+ ? =null
  assignments []struct
    memberId string
    assignment bytes

SyncGroupResponse 0-5 flexible 4+
  throttleTimeMs int32 1+
  errorCode int16
  protocolType string 5+ ? =null
  protocolName string 5+ ? =null
  assignment bytes

DescribeGroupsRequest 0-6 flexible 5+
  groups []string
  includeAuthorizedOperations bool 3+

DescribeGroupsResponse 0-6 flexible 5+
  throttleTimeMs int32 1+
  groups []struct
    errorCode int16
    errorMessage string 6+ ? =null
    groupId string
    groupState string
    protocolType string
    protocolData string
    members []struct
      memberId string
      groupInstanceId string 4+ ? =null
      clientId string
      clientHost string
      memberMetadata bytes
      memberAssignment bytes
    authorizedOperations int32 3+ =-2147483648

ListGroupsRequest 0-5 flexible 3+
  statesFilter []string 4+
  typesFilter []string 5+

ListGroupsResponse 0-5 flexible 3+
  throttleTimeMs int32 1+
  errorCode int16
  groups []struct
    groupId string
    protocolType string
    groupState string 4+
    groupType string 5+

DeleteGroupsRequest 0-2 flexible 2+
  groupsNames []string

DeleteGroupsResponse 0-2 flexible 2+
  throttleTimeMs int32
  results []struct
    groupId string
    errorCode int16

ConsumerGroupHeartbeatRequest 0-1 flexible 0+
  groupId string
  memberId string
  memberEpoch int32
  instanceId string ? =null
  rackId string ? =null
  rebalanceTimeoutMs int32 =-1
  subscribedTopicNames []string ? =null
  subscribedTopicRegex string 1+ ? =null
  serverAssignor string ? =null
  topicPartitions []struct ? =null
    topicId uuid
    partitions []int32

ConsumerGroupHeartbeatResponse 0-1 flexible 0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string ? =null
  memberId string ? =null
  memberEpoch int32
  heartbeatIntervalMs int32
  assignment struct ? =null
    topicPartitions []struct
      topicId uuid
      partitions []int32
"""

# Committed offsets.

OFFSETS = """
OffsetCommitRequest 2-10 flexible 8+
  groupId string
  generationIdOrMemberEpoch int32 =-1
  memberId string
  groupInstanceId string 7+ ? =null
  retentionTimeMs int64 2-4 =-1
  topics []struct
    name string 2-9
    topicId uuid 10+
    partitions []struct
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 6+ =-1
      committedMetadata string ?

OffsetCommitResponse 2-10 flexible 8+
  throttleTimeMs int32 3+
  topics []struct
    name string 2-9
    topicId uuid 10+
    partitions []struct
      partitionIndex int32
      errorCode int16

OffsetFetchRequest 1-10 flexible 6+
  groupId string 1-7
  topics []struct 1-7 ?2-7
    name string
    partitionIndexes []int32
  groups []struct 8+
    groupId string
    memberId string 9+ ? =null
    memberEpoch int32 9+ =-1
    topics []struct ?
      name string 8-9
      topicId uuid 10+
      partitionIndexes []int32
  requireStable bool 7+

OffsetFetchResponse 1-10 flexible 6+
  throttleTimeMs int32 3+
  topics []struct 1-7
    name string
    partitions []struct
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 5-7 =-1
      metadata string ?
      errorCode int16
  errorCode int16 2-7
  groups []struct 8+
    groupId string
    topics []struct
      name string 8-9
      topicId uuid 10+
      partitions []struct
        partitionIndex int32
        committedOffset int64
        committedLeaderEpoch int32 =-1
        metadata string ?
        errorCode int16
    errorCode int16

OffsetDeleteRequest 0 flexible none
  groupId string
  topics []struct
    name string
    partitions []struct
      partitionIndex int32

OffsetDeleteResponse 0 flexible none
  errorCode int16
  throttleTimeMs int32
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      errorCode int16

TxnOffsetCommitRequest 0-5 flexible 3+
  transactionalId string
  groupId string
  producerId int64
  producerEpoch int16
  generationId int32 3+ =-1
  memberId string 3+
  groupInstanceId string 3+ ? =null
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 2+ =-1
      committedMetadata string ?

TxnOffsetCommitResponse 0-5 flexible 3+
  throttleTimeMs int32
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      errorCode int16
"""

# Topics, their configuration, and the cluster they live in.

TOPICS = """
MetadataRequest 0-13 flexible 9+
  topics []struct ?1+
    topicId uuid 10+
    name string ?10+
  allowAutoTopicCreation bool 4+ =true
  includeClusterAuthorizedOperations bool 8-10
  includeTopicAuthorizedOperations bool 8+

MetadataResponse 0-13 flexible 9+
  throttleTimeMs int32 3+
  brokers []struct
    nodeId int32
    host string
    port int32
    rack string 1+ ? =null
  clusterId string 2+ ? =null
  controllerId int32 1+ =-1
  topics []struct
    errorCode int16
    name string ?12+
    topicId uuid 10+
    isInternal bool 1+
    partitions []struct
      errorCode int16
      partitionIndex int32
      leaderId int32
      leaderEpoch int32 7+ =-1
      replicaNodes []int32
      isrNodes []int32
      offlineReplicas []int32 5+
    topicAuthorizedOperations int32 8+ =-2147483648
  clusterAuthorizedOperations int32 8-10 =-2147483648
  errorCode int16 13+

CreateTopicsRequest 2-7 flexible 5+
  topics []struct
    name string
    numPartitions int32
    replicationFactor int16
    assignments []struct
      partitionIndex int32
      brokerIds []int32
    configs []struct
      name string
      value string ?
  timeoutMs int32 =60000
  validateOnly bool

CreateTopicsResponse 2-7 flexible 5+
  throttleTimeMs int32
  topics []struct
    name string
    topicId uuid 7+
    errorCode int16
    errorMessage string ?
    topicConfigErrorCode int16 5+ #0
    numPartitions int32 5+ =-1
    replicationFactor int16 5+ =-1
    configs []struct 5+ ?
      name string
      value string ?
      readOnly bool
      configSource int8 =-1
      isSensitive bool

DeleteTopicsRequest 1-6 flexible 4+
  topics []struct 6+
    name string ? =null
    topicId uuid
  topicNames []string 1-5
  timeoutMs int32

DeleteTopicsResponse 1-6 flexible 4+
  throttleTimeMs int32
  responses []struct
    name string ?6+
    topicId uuid 6+
    errorCode int16
    errorMessage string 5+ ? =null

DeleteRecordsRequest 0-2 flexible 2+
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      offset int64
  timeoutMs int32

DeleteRecordsResponse 0-2 flexible 2+
  throttleTimeMs int32
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      lowWatermark int64
      errorCode int16

DescribeProducersRequest 0 flexible 0+
  topics []struct
    name string
    partitionIndexes []int32

DescribeProducersResponse 0 flexible 0+
  throttleTimeMs int32
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      errorCode int16
      errorMessage string ? =null
      activeProducers []struct
        producerId int64
        producerEpoch int32
        lastSequence int32 =-1
        lastTimestamp int64 =-1
        coordinatorEpoch int32
        currentTxnStartOffset int64 =-1

AlterReplicaLogDirsRequest 1-2 flexible 2+
  dirs []struct
    path string
    topics []struct
      name string
      partitions []int32

AlterReplicaLogDirsResponse 1-2 flexible 2+
  throttleTimeMs int32
  results []struct
    topicName string
    partitions []struct
      partitionIndex int32
      errorCode int16

DescribeLogDirsRequest 1-5 flexible 2+
  topics []struct ?
    topic string
    partitions []int32

DescribeLogDirsResponse 1-5 flexible 2+
  throttleTimeMs int32
  errorCode int16 3+
  results []struct
    errorCode int16
    logDir string
    topics []struct
      name string
      partitions []struct
        partitionIndex int32
        partitionSize int64
        offsetLag int64
        isFutureKey bool
    totalBytes int64 4+ =-1
    usableBytes int64 4+ =-1
    isCordoned bool 5+

AlterConfigsRequest 0-2 flexible 2+
  resources []struct
    resourceType int8
    resourceName string
    configs []struct
      name string
      value string ?
  validateOnly bool

AlterConfigsResponse 0-2 flexible 2+
  throttleTimeMs int32
  responses []struct
    errorCode int16
    errorMessage string ?
    resourceType int8
    resourceName string

IncrementalAlterConfigsRequest 0-1 flexible 1+
  resources []struct
    resourceType int8
    resourceName string
    configs []struct
      name string
      configOperation int8
      value string ?
  validateOnly bool

IncrementalAlterConfigsResponse 0-1 flexible 1+
  throttleTimeMs int32
  responses []struct
    errorCode int16
    errorMessage string ?
    resourceType int8
    resourceName string

DescribeConfigsRequest 1-4 flexible 4+
  resources []struct
    resourceType int8
    resourceName string
    configurationKeys []string ?
  includeSynonyms bool
  includeDocumentation bool 3+

DescribeConfigsResponse 1-4 flexible 4+
  throttleTimeMs int32
  results []struct
    errorCode int16
    errorMessage string ?
    resourceType int8
    resourceName string
    configs []struct
      name string
      value string ?
      readOnly bool
      configSource int8 =-1
      isSensitive bool
      synonyms []struct
        name string
        value string ?
        source int8
      configType int8 3+
      documentation string 3+ ?

CreatePartitionsRequest 0-3 flexible 2+
  topics []struct
    name string
    count int32
    assignments []struct ?
      brokerIds []int32
  timeoutMs int32
  validateOnly bool

CreatePartitionsResponse 0-3 flexible 2+
  throttleTimeMs int32
  results []struct
    name string
    errorCode int16
    errorMessage string ? =null

DescribeClusterRequest 0-2 flexible 0+
  includeClusterAuthorizedOperations bool
  endpointType int8 1+ =1
  includeFencedBrokers bool 2+

DescribeClusterResponse 0-2 flexible 0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string ? =null
  endpointType int8 1+ =1
  clusterId string
  controllerId int32 =-1
  brokers []struct
    brokerId int32
    host string
    port int32
    rack string ? =null
    isFenced bool 2+
  clusterAuthorizedOperations int32 =-2147483648

DescribeTopicPartitionsRequest 0 flexible 0+
  topics []struct
    name string
  responsePartitionLimit int32 =2000
  cursor struct ? =null
    topicName string
    partitionIndex int32

DescribeTopicPartitionsResponse 0 flexible 0+
  throttleTimeMs int32
  topics []struct
    errorCode int16
    name string ?
    topicId uuid
    isInternal bool
    partitions []struct
      errorCode int16
      partitionIndex int32
      leaderId int32
      leaderEpoch int32 =-1
      replicaNodes []int32
      isrNodes []int32
      eligibleLeaderReplicas []int32 ? =null
      lastKnownElr []int32 ? =null
      offlineReplicas []int32
    topicAuthorizedOperations int32 =-2147483648
  nextCursor struct ? =null
    topicName string
    partitionIndex int32
"""

# Records in and out, and where they are.

RECORDS = """
ProduceRequest 3-13 flexible 9+
  transactionalId string ? =null
  acks int16
  timeoutMs int32
  topicData []struct
    name string 3-12
    topicId uuid 13+
    partitionData []struct
      index int32
      records records ?

ProduceResponse 3-13 flexible 9+
  responses []struct
    name string 3-12
    topicId uuid 13+
    partitionResponses []struct
      index int32
      errorCode int16
      baseOffset int64
      logAppendTimeMs int64 =-1
      logStartOffset int64 5+ =-1
      recordErrors []struct 8+
        batchIndex int32
        batchIndexErrorMessage string ? =null
      errorMessage string 8+ ? =null
      currentLeader struct 10+ #0
        leaderId int32 =-1
        leaderEpoch int32 =-1
  throttleTimeMs int32
  nodeEndpoints []struct 10+ #0
    nodeId int32
    host string
    port int32
    rack string ? =null

FetchRequest 4-18 flexible 12+
  clusterId string 12+ ? #0 =null
  replicaId int32 4-14 =-1
  replicaState struct 15+ #1
    replicaId int32 =-1
    replicaEpoch int64 =-1
  maxWaitMs int32
  minBytes int32
  maxBytes int32 =2147483647
  isolationLevel int8
  sessionId int32 7+
  sessionEpoch int32 7+ =-1
  topics []struct
    topic string 4-12
    topicId uuid 13+
    partitions []struct
      partition int32
      currentLeaderEpoch int32 9+ =-1
      fetchOffset int64
      lastFetchedEpoch int32 12+ =-1
      logStartOffset int64 5+ =-1
      partitionMaxBytes int32
      replicaDirectoryId uuid 17+ #0
      highWatermark int64 18+ #1 =9223372036854775807
  forgottenTopicsData []struct 7+
    topic string 7-12
    topicId uuid 13+
    partitions []int32
  rackId string 11+

FetchResponse 4-18 flexible 12+
  throttleTimeMs int32
  errorCode int16 7+
  sessionId int32 7+
  responses []struct
    topic string 4-12
    topicId uuid 13+
    partitions []struct
      partitionIndex int32
      errorCode int16
      highWatermark int64
      lastStableOffset int64 =-1
      logStartOffset int64 5+ =-1
      divergingEpoch struct 12+ #0
        epoch int32 =-1
        endOffset int64 =-1
      currentLeader struct 12+ #1
        leaderId int32 =-1
        leaderEpoch int32 =-1
      snapshotId struct 12+ #2
        endOffset int64 =-1
        epoch int32 =-1
      abortedTransactions []struct ?
        producerId int64
        firstOffset int64
      preferredReadReplica int32 11+ =-1
      records records ?
  nodeEndpoints []struct 16+ #0
    nodeId int32
    host string
    port int32
    rack string ? =null

ListOffsetsRequest 1-11 flexible 6+
  replicaId int32
  isolationLevel int8 2+
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      currentLeaderEpoch int32 4+ =-1
      timestamp int64
  timeoutMs int32 10+

ListOffsetsResponse 1-11 flexible 6+
  throttleTimeMs int32 2+
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      errorCode int16
      timestamp int64 =-1
      offset int64 =-1
      leaderEpoch int32 4+ =-1

OffsetForLeaderEpochRequest 2-4 flexible 4+
  replicaId int32 3+ =-2
  topics []struct
    topic string
    partitions []struct
      partition int32
      currentLeaderEpoch int32 =-1
      leaderEpoch int32

OffsetForLeaderEpochResponse 2-4 flexible 4+
  throttleTimeMs int32
  topics []struct
    topic string
    partitions []struct
      errorCode int16
      partition int32
      leaderEpoch int32 =-1
      endOffset int64 =-1
"""

# Producers and their transactions.

TRANSACTIONS = """
InitProducerIdRequest 0-6 flexible 2+
  transactionalId string ?
  transactionTimeoutMs int32
  producerId int64 3+ =-1
  producerEpoch int16 3+ =-1
  enable2Pc bool 6+
  keepPreparedTxn bool 6+

InitProducerIdResponse 0-6 flexible 2+
  throttleTimeMs int32
  errorCode int16
  producerId int64 =-1
  producerEpoch int16
  ongoingTxnProducerId int64 6+ =-1
  ongoingTxnProducerEpoch int16 6+ =-1

AddPartitionsToTxnRequest 0-5 flexible 3+
  transactions []struct 4+
    transactionalId string
    producerId int64
    producerEpoch int16
    verifyOnly bool
    topics []struct
      name string
      partitions []int32
  v3AndBelowTransactionalId string 0-3
  v3AndBelowProducerId int64 0-3
  v3AndBelowProducerEpoch int16 0-3
  v3AndBelowTopics []struct 0-3
    name string
    partitions []int32

AddPartitionsToTxnResponse 0-5 flexible 3+
  throttleTimeMs int32
  errorCode int16 4+
  resultsByTransaction []struct 4+
    transactionalId string
    topicResults []struct
      name string
      resultsByPartition []struct
        partitionIndex int32
        partitionErrorCode int16
  resultsByTopicV3AndBelow []struct 0-3
    name string
    resultsByPartition []struct
      partitionIndex int32
      partitionErrorCode int16

AddOffsetsToTxnRequest 0-4 flexible 3+
  transactionalId string
  producerId int64
  producerEpoch int16
  groupId string

AddOffsetsToTxnResponse 0-4 flexible 3+
  throttleTimeMs int32
  errorCode int16

EndTxnRequest 0-5 flexible 3+
  transactionalId string
  producerId int64
  producerEpoch int16
  committed bool

EndTxnResponse 0-5 flexible 3+
  throttleTimeMs int32
  errorCode int16
  producerId int64 5+ =-1
  producerEpoch int16 5+ =-1

WriteTxnMarkersRequest 1-2 flexible 1+
  markers []struct
    producerId int64
    producerEpoch int16
    transactionResult bool
    topics []struct
      name string
      partitionIndexes []int32
    coordinatorEpoch int32
    transactionVersion int8 2+

WriteTxnMarkersResponse 1-2 flexible 1+
  markers []struct
    producerId int64
    topics []struct
      name string
      partitions []struct
        partitionIndex int32
        errorCode int16

DescribeTransactionsRequest 0 flexible 0+
  transactionalIds []string

DescribeTransactionsResponse 0 flexible 0+
  throttleTimeMs int32
  transactionStates []struct
    errorCode int16
    transactionalId string
    transactionState string
    transactionTimeoutMs int32
    transactionStartTimeMs int64
    producerId int64
    producerEpoch int16
    topics []struct
      topic string
      partitions []int32

ListTransactionsRequest 0-2 flexible 0+
  stateFilters []string
  producerIdFilters []int64
  durationFilter int64 1+ =-1
  transactionalIdPattern string 2+ ? =null

ListTransactionsResponse 0-2 flexible 0+
  throttleTimeMs int32
  errorCode int16
  unknownStateFilters []string
  transactionStates []struct
    transactionalId string
    producerId int64
    transactionState string
"""

# What admin tools ask of a cluster of many nodes, and of access control.

NODES = """
DescribeAclsRequest 1-3 flexible 2+
  resourceTypeFilter int8
  resourceNameFilter string ?
  patternTypeFilter int8 =3
  principalFilter string ?
  hostFilter string ?
  operation int8
  permissionType int8

DescribeAclsResponse 1-3 flexible 2+
  throttleTimeMs int32
  errorCode int16
  errorMessage string ?
  resources []struct
    resourceType int8
    resourceName string
    patternType int8 =3
    acls []struct
      principal string
      host string
      operation int8
      permissionType int8

CreateAclsRequest 1-3 flexible 2+
  creations []struct
    resourceType int8
    resourceName string
    resourcePatternType int8 =3
    principal string
    host string
    operation int8
    permissionType int8

CreateAclsResponse 1-3 flexible 2+
  throttleTimeMs int32
  results []struct
    errorCode int16
    errorMessage string ?

DeleteAclsRequest 1-3 flexible 2+
  filters []struct
    resourceTypeFilter int8
    resourceNameFilter string ?
    patternTypeFilter int8 =3
    principalFilter string ?
    hostFilter string ?
    operation int8
    permissionType int8

DeleteAclsResponse 1-3 flexible 2+
  throttleTimeMs int32
  filterResults []struct
    errorCode int16
    errorMessage string ?
    matchingAcls []struct
      errorCode int16
      errorMessage string ?
      resourceType int8
      resourceName string
      patternType int8 =3
      principal string
      host string
      operation int8
      permissionType int8

ElectLeadersRequest 0-2 flexible 2+
  electionType int8 1+
  topicPartitions []struct ?
    topic string
    partitions []int32
  timeoutMs int32 =60000

ElectLeadersResponse 0-2 flexible 2+
  throttleTimeMs int32
  errorCode int16 1+
  replicaElectionResults []struct
    topic string
    partitionResult []struct
      partitionId int32
      errorCode int16
      errorMessage string ?

AlterPartitionReassignmentsRequest 0-1 flexible 0+
  timeoutMs int32 =60000
  allowReplicationFactorChange bool 1+ =true
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      replicas []int32 ? =null

AlterPartitionReassignmentsResponse 0-1 flexible 0+
  throttleTimeMs int32
  allowReplicationFactorChange bool 1+ =true
  errorCode int16
  errorMessage string ?
  responses []struct
    name string
    partitions []struct
      partitionIndex int32
      errorCode int16
      errorMessage string ?

ListPartitionReassignmentsRequest 0 flexible 0+
  timeoutMs int32 =60000
  topics []struct ? =null
    name string
    partitionIndexes []int32

ListPartitionReassignmentsResponse 0 flexible 0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string ?
  topics []struct
    name string
    partitions []struct
      partitionIndex int32
      replicas []int32
      addingReplicas []int32
      removingReplicas []int32

DescribeQuorumRequest 0-2 flexible 0+
  topics []struct
    topicName string
    partitions []struct
      partitionIndex int32

DescribeQuorumResponse 0-2 flexible 0+
  errorCode int16
  errorMessage string 2+ ?
  topics []struct
    topicName string
    partitions []struct
      partitionIndex int32
      errorCode int16
      errorMessage string 2+ ?
      leaderId int32
      leaderEpoch int32
      highWatermark int64
      currentVoters []struct
        replicaId int32
        replicaDirectoryId uuid 2+
        logEndOffset int64
        lastFetchTimestamp int64 1+ =-1
        lastCaughtUpTimestamp int64 1+ =-1
      observers []struct
        replicaId int32
        replicaDirectoryId uuid 2+
        logEndOffset int64
        lastFetchTimestamp int64 1+ =-1
        lastCaughtUpTimestamp int64 1+ =-1
  nodes []struct 2+
    nodeId int32
    listeners []struct
      name string
      host string
      port uint16

ListConfigResourcesRequest 0-1 flexible 0+
  resourceTypes []int8 1+

ListConfigResourcesResponse 0-1 flexible 0+
  throttleTimeMs int32
  errorCode int16
  configResources []struct
    resourceName string
    resourceType int8 1+ =16
"""


@cache
def message_texts() -> dict[str, str]:
    """The lines of each message by its name."""
    blocks = "\n".join((SESSIONS, GROUPS, OFFSETS, TOPICS, RECORDS, TRANSACTIONS, NODES)).strip().split("\n\n")
    return {block.split(maxsplit=1)[0]: block.strip("\n") for block in blocks if block.strip()}
