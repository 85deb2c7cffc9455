"""Committed offsets."""

MESSAGES = """
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
