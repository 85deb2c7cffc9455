"""Producers and their transactions."""

MESSAGES = """
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
