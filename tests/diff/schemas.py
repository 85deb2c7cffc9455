"""The requests and responses that scripts need, in the words of Kafka's own message schemas.

A block is one API: its name, its key, the first flexible version, the highest version there is. `>` begins the request,
`<` the response. A field is a name, a type, the versions that have it (all, if none are named), `?` and the versions in
which it may be null, and `=` with a default for callers who leave it out. Fields further in belong to the struct above.
"""

SCHEMAS = """
JoinGroup 11 6 9
>
  group_id string
  session_timeout_ms int32
  rebalance_timeout_ms int32 1+ =-1
  member_id string
  group_instance_id string 5+ ?5+ =null
  protocol_type string
  protocols []
    name string
    metadata bytes
  reason string 8+ ?8+ =null
<
  throttle_time_ms int32 2+ =0
  error_code int16
  generation_id int32
  protocol_type string 7+ ?7+
  protocol_name string 0+ ?7+
  leader string
  skip_assignment bool 9+
  member_id string
  members []
    member_id string
    group_instance_id string 5+ ?5+
    metadata bytes

SyncGroup 14 4 5
>
  group_id string
  generation_id int32
  member_id string
  group_instance_id string 3+ ?3+ =null
  protocol_type string 5+ ?5+ =null
  protocol_name string 5+ ?5+ =null
  assignments []
    member_id string
    assignment bytes
<
  throttle_time_ms int32 1+ =0
  error_code int16
  protocol_type string 5+ ?5+
  protocol_name string 5+ ?5+
  assignment bytes

Heartbeat 12 4 4
>
  group_id string
  generation_id int32
  member_id string
  group_instance_id string 3+ ?3+ =null
<
  throttle_time_ms int32 1+ =0
  error_code int16

LeaveGroup 13 4 5
>
  group_id string
  member_id string 0-2
  members [] 3+
    member_id string
    group_instance_id string 3+ ?3+ =null
    reason string 5+ ?5+ =null
<
  throttle_time_ms int32 1+ =0
  error_code int16
  members [] 3+
    member_id string
    group_instance_id string 3+ ?3+
    error_code int16

OffsetCommit 8 8 10
>
  group_id string
  generation_id_or_member_epoch int32 1+ =-1
  member_id string 1+
  group_instance_id string 7+ ?7+ =null
  retention_time_ms int64 2-4 =-1
  topics []
    name string 0-9
    topic_id uuid 10+
    partitions []
      partition_index int32
      committed_offset int64
      committed_leader_epoch int32 6+ =-1
      committed_metadata string 0+ ?0+
<
  throttle_time_ms int32 3+ =0
  topics []
    name string 0-9
    topic_id uuid 10+
    partitions []
      partition_index int32
      error_code int16

OffsetFetch 9 6 10
>
  group_id string 0-7
  topics [] 0-7 ?2-7
    name string
    partition_indexes []int32
  groups [] 8+
    group_id string
    member_id string 9+ ?9+ =null
    member_epoch int32 9+ =-1
    topics [] 8+ ?8+
      name string 8-9
      topic_id uuid 10+
      partition_indexes []int32
  require_stable bool 7+ =false
<
  throttle_time_ms int32 3+ =0
  topics [] 0-7
    name string
    partitions []
      partition_index int32
      committed_offset int64
      committed_leader_epoch int32 5-7
      metadata string 0+ ?0+
      error_code int16
  error_code int16 2-7
  groups [] 8+
    group_id string
    topics []
      name string 8-9
      topic_id uuid 10+
      partitions []
        partition_index int32
        committed_offset int64
        committed_leader_epoch int32
        metadata string 0+ ?0+
        error_code int16
    error_code int16

OffsetDelete 47 none 0
>
  group_id string
  topics []
    name string
    partitions []
      partition_index int32
<
  error_code int16
  throttle_time_ms int32 =0
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16

DescribeGroups 15 5 6
>
  groups []string
  include_authorized_operations bool 3+ =false
<
  throttle_time_ms int32 1+ =0
  groups []
    error_code int16
    error_message string 6+ ?6+
    group_id string
    group_state string
    protocol_type string
    protocol_data string
    members []
      member_id string
      group_instance_id string 4+ ?4+
      client_id string
      client_host string
      member_metadata bytes
      member_assignment bytes
    authorized_operations int32 3+

ListGroups 16 3 5
>
  states_filter []string 4+
  types_filter []string 5+
<
  throttle_time_ms int32 1+ =0
  error_code int16
  groups []
    group_id string
    protocol_type string
    group_state string 4+
    group_type string 5+

DeleteGroups 42 2 2
>
  groups_names []string
<
  throttle_time_ms int32 =0
  results []
    group_id string
    error_code int16

TxnOffsetCommit 28 3 5
>
  transactional_id string
  group_id string
  producer_id int64
  producer_epoch int16
  generation_id int32 3+ =-1
  member_id string 3+
  group_instance_id string 3+ ?3+ =null
  topics []
    name string
    partitions []
      partition_index int32
      committed_offset int64
      committed_leader_epoch int32 2+ =-1
      committed_metadata string 0+ ?0+
<
  throttle_time_ms int32 =0
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16

InitProducerId 22 2 5
>
  transactional_id string 0+ ?0+
  transaction_timeout_ms int32
  producer_id int64 3+ =-1
  producer_epoch int16 3+ =-1
<
  throttle_time_ms int32 =0
  error_code int16
  producer_id int64
  producer_epoch int16

AddOffsetsToTxn 25 3 4
>
  transactional_id string
  producer_id int64
  producer_epoch int16
  group_id string
<
  throttle_time_ms int32 =0
  error_code int16

EndTxn 26 3 5
>
  transactional_id string
  producer_id int64
  producer_epoch int16
  committed bool
<
  throttle_time_ms int32 =0
  error_code int16
  producer_id int64 5+ =-1
  producer_epoch int16 5+ =-1

FindCoordinator 10 3 4
>
  key_type int8 1+
  coordinator_keys []string 4+
<
  throttle_time_ms int32 1+
  coordinators [] 4+
    key string
    node_id int32
    host string
    port int32
    error_code int16
    error_message string 0+ ?0+

CreateTopics 19 5 7
>
  topics []
    name string
    num_partitions int32
    replication_factor int16
    assignments []
      partition_index int32
      broker_ids []int32
    configs []
      name string
      value string 0+ ?0+
  timeout_ms int32
  validate_only bool 1+ =false
<
  throttle_time_ms int32 2+
  topics []
    name string
    topic_id uuid 7+
    error_code int16
    error_message string 1+ ?0+
    num_partitions int32 5+
    replication_factor int16 5+
    configs [] 5+ ?5+
      name string
      value string 0+ ?0+
      read_only bool
      config_source int8
      is_sensitive bool

ListOffsets 2 6 7
>
  replica_id int32 =-1
  isolation_level int8 2+
  topics []
    name string
    partitions []
      partition_index int32
      current_leader_epoch int32 4+ =-1
      timestamp int64
<
  throttle_time_ms int32 2+
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
      timestamp int64
      offset int64
      leader_epoch int32 4+
"""
