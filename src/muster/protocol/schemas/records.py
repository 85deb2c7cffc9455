"""Records in and out, where they are, and the transactions of their producers."""

MESSAGES = """
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
"""
