"""Group membership, and groups seen from outside."""

MESSAGES = """
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
