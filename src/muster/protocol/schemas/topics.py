"""Topics, their configuration, and the cluster they live in."""

MESSAGES = """
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
