from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

AUTO_SPLIT: KeySharedMode
DESCRIPTOR: _descriptor.FileDescriptor
EARLIEST: InitialPosition
EITHER: LookupWanted
EXCLUSIVE: AccessMode
EXCLUSIVE_WITH_FENCING: AccessMode
LATEST: InitialPosition
OWNER: LookupWanted
PARTITIONS: LookupWanted
REPLICA: LookupWanted
SHARED: AccessMode
STICKY: KeySharedMode
SUB_EXCLUSIVE: SubscriptionType
SUB_FAILOVER: SubscriptionType
SUB_KEY_SHARED: SubscriptionType
SUB_SHARED: SubscriptionType
WAIT_FOR_EXCLUSIVE: AccessMode

class Ack(_message.Message):
    __slots__ = ["batch_indexes", "consumer_id", "cumulative", "entries", "ledgers", "request_id"]
    BATCH_INDEXES_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    batch_indexes: _containers.RepeatedScalarFieldContainer[int]
    consumer_id: int
    cumulative: bool
    entries: _containers.RepeatedScalarFieldContainer[int]
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., cumulative: bool = ..., ledgers: _Optional[_Iterable[int]] = ..., entries: _Optional[_Iterable[int]] = ..., batch_indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class ActiveConsumerChange(_message.Message):
    __slots__ = ["active", "consumer_id"]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    active: bool
    consumer_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., active: bool = ...) -> None: ...

class AdminRequest(_message.Message):
    __slots__ = ["admin_key", "body", "method", "query", "segments"]
    class QueryEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADMIN_KEY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    admin_key: str
    body: bytes
    method: str
    query: _containers.ScalarMap[str, str]
    segments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, method: _Optional[str] = ..., segments: _Optional[_Iterable[str]] = ..., query: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ..., admin_key: _Optional[str] = ...) -> None: ...

class AdminResponse(_message.Message):
    __slots__ = ["body", "content_type", "headers", "status"]
    class HeadersEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BODY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    content_type: str
    headers: _containers.ScalarMap[str, str]
    status: int
    def __init__(self, status: _Optional[int] = ..., body: _Optional[bytes] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BrokerAddresses(_message.Message):
    __slots__ = ["address", "address_tls", "framed_address", "framed_address_tls"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_TLS_FIELD_NUMBER: _ClassVar[int]
    FRAMED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FRAMED_ADDRESS_TLS_FIELD_NUMBER: _ClassVar[int]
    address: str
    address_tls: str
    framed_address: str
    framed_address_tls: str
    def __init__(self, address: _Optional[str] = ..., framed_address: _Optional[str] = ..., address_tls: _Optional[str] = ..., framed_address_tls: _Optional[str] = ...) -> None: ...

class CaptureRefusal(_message.Message):
    __slots__ = ["code", "index", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    index: int
    message: str
    def __init__(self, index: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class CaptureRequest(_message.Message):
    __slots__ = ["admin_key", "ask", "attempt", "epoch", "into", "range", "rule", "runs", "sender"]
    ADMIN_KEY_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INTO_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    admin_key: str
    ask: str
    attempt: int
    epoch: int
    into: str
    range: str
    rule: str
    runs: _containers.RepeatedCompositeFieldContainer[CapturedRun]
    sender: str
    def __init__(self, admin_key: _Optional[str] = ..., into: _Optional[str] = ..., rule: _Optional[str] = ..., range: _Optional[str] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., sender: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[CapturedRun, _Mapping]]] = ..., ask: _Optional[str] = ...) -> None: ...

class CaptureResponse(_message.Message):
    __slots__ = ["code", "done", "message", "next_sequence_id", "refused"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    code: int
    done: int
    message: str
    next_sequence_id: int
    refused: _containers.RepeatedCompositeFieldContainer[CaptureRefusal]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., done: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[CaptureRefusal, _Mapping]]] = ..., next_sequence_id: _Optional[int] = ...) -> None: ...

class CapturedRun(_message.Message):
    __slots__ = ["entries", "producer"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    producer: str
    def __init__(self, producer: _Optional[str] = ..., entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CloseConsumer(_message.Message):
    __slots__ = ["consumer_id", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ...) -> None: ...

class CloseProducer(_message.Message):
    __slots__ = ["producer_id", "request_id"]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., producer_id: _Optional[int] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ["acks", "close", "credentials", "extend", "flow_consumers", "flow_permits", "heartbeat", "last_message_id", "redeliver", "seek", "subscribe", "taken", "unsubscribe"]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    FLOW_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    FLOW_PERMITS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    acks: _containers.RepeatedCompositeFieldContainer[Ack]
    close: _containers.RepeatedCompositeFieldContainer[CloseConsumer]
    credentials: Credentials
    extend: _containers.RepeatedCompositeFieldContainer[ExtendAck]
    flow_consumers: _containers.RepeatedScalarFieldContainer[int]
    flow_permits: _containers.RepeatedScalarFieldContainer[int]
    heartbeat: bool
    last_message_id: _containers.RepeatedCompositeFieldContainer[GetLastMessageId]
    redeliver: _containers.RepeatedCompositeFieldContainer[Redeliver]
    seek: _containers.RepeatedCompositeFieldContainer[Seek]
    subscribe: _containers.RepeatedCompositeFieldContainer[Subscribe]
    taken: int
    unsubscribe: _containers.RepeatedCompositeFieldContainer[Unsubscribe]
    def __init__(self, subscribe: _Optional[_Iterable[_Union[Subscribe, _Mapping]]] = ..., close: _Optional[_Iterable[_Union[CloseConsumer, _Mapping]]] = ..., unsubscribe: _Optional[_Iterable[_Union[Unsubscribe, _Mapping]]] = ..., seek: _Optional[_Iterable[_Union[Seek, _Mapping]]] = ..., last_message_id: _Optional[_Iterable[_Union[GetLastMessageId, _Mapping]]] = ..., flow_consumers: _Optional[_Iterable[int]] = ..., flow_permits: _Optional[_Iterable[int]] = ..., acks: _Optional[_Iterable[_Union[Ack, _Mapping]]] = ..., redeliver: _Optional[_Iterable[_Union[Redeliver, _Mapping]]] = ..., taken: _Optional[int] = ..., heartbeat: bool = ..., credentials: _Optional[_Union[Credentials, _Mapping]] = ..., extend: _Optional[_Iterable[_Union[ExtendAck, _Mapping]]] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ["ack_set_rows", "ack_sets", "active", "ask_credentials", "closed", "consumer_ids", "counted", "ended", "entries", "entry_ids", "heartbeat", "last_message_id", "ledgers", "outcomes", "redelivery_counts", "sizes", "subscribed"]
    ACK_SETS_FIELD_NUMBER: _ClassVar[int]
    ACK_SET_ROWS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ASK_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_IDS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_IDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    ack_set_rows: _containers.RepeatedScalarFieldContainer[int]
    ack_sets: _containers.RepeatedScalarFieldContainer[bytes]
    active: _containers.RepeatedCompositeFieldContainer[ActiveConsumerChange]
    ask_credentials: bool
    closed: _containers.RepeatedCompositeFieldContainer[ConsumerClosed]
    consumer_ids: _containers.RepeatedScalarFieldContainer[int]
    counted: bool
    ended: _containers.RepeatedCompositeFieldContainer[ReachedEndOfTopic]
    entries: bytes
    entry_ids: _containers.RepeatedScalarFieldContainer[int]
    heartbeat: bool
    last_message_id: _containers.RepeatedCompositeFieldContainer[LastMessageId]
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    redelivery_counts: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    subscribed: _containers.RepeatedCompositeFieldContainer[Subscribed]
    def __init__(self, subscribed: _Optional[_Iterable[_Union[Subscribed, _Mapping]]] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., closed: _Optional[_Iterable[_Union[ConsumerClosed, _Mapping]]] = ..., active: _Optional[_Iterable[_Union[ActiveConsumerChange, _Mapping]]] = ..., last_message_id: _Optional[_Iterable[_Union[LastMessageId, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[ReachedEndOfTopic, _Mapping]]] = ..., consumer_ids: _Optional[_Iterable[int]] = ..., ledgers: _Optional[_Iterable[int]] = ..., entry_ids: _Optional[_Iterable[int]] = ..., redelivery_counts: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., counted: bool = ..., heartbeat: bool = ..., ack_set_rows: _Optional[_Iterable[int]] = ..., ack_sets: _Optional[_Iterable[bytes]] = ..., ask_credentials: bool = ..., entries: _Optional[bytes] = ...) -> None: ...

class ConsumerClosed(_message.Message):
    __slots__ = ["code", "consumer_id", "message", "moved_to"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    code: int
    consumer_id: int
    message: str
    moved_to: BrokerAddresses
    def __init__(self, consumer_id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., moved_to: _Optional[_Union[BrokerAddresses, _Mapping]] = ...) -> None: ...

class Credentials(_message.Message):
    __slots__ = ["data", "method"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    method: str
    def __init__(self, method: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class ExtendAck(_message.Message):
    __slots__ = ["consumer_id", "entries", "ledgers"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    entries: _containers.RepeatedScalarFieldContainer[int]
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, consumer_id: _Optional[int] = ..., ledgers: _Optional[_Iterable[int]] = ..., entries: _Optional[_Iterable[int]] = ...) -> None: ...

class GetLastMessageId(_message.Message):
    __slots__ = ["consumer_id", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ...) -> None: ...

class KeySharedPolicy(_message.Message):
    __slots__ = ["allow_out_of_order_delivery", "mode", "range_firsts", "range_lasts"]
    ALLOW_OUT_OF_ORDER_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIRSTS_FIELD_NUMBER: _ClassVar[int]
    RANGE_LASTS_FIELD_NUMBER: _ClassVar[int]
    allow_out_of_order_delivery: bool
    mode: KeySharedMode
    range_firsts: _containers.RepeatedScalarFieldContainer[int]
    range_lasts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mode: _Optional[_Union[KeySharedMode, str]] = ..., allow_out_of_order_delivery: bool = ..., range_firsts: _Optional[_Iterable[int]] = ..., range_lasts: _Optional[_Iterable[int]] = ...) -> None: ...

class LastMessageId(_message.Message):
    __slots__ = ["last", "mark_delete", "outcome"]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    last: MessageId
    mark_delete: MessageId
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., last: _Optional[_Union[MessageId, _Mapping]] = ..., mark_delete: _Optional[_Union[MessageId, _Mapping]] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ["authoritative", "listener", "topic", "wanted"]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    authoritative: bool
    listener: str
    topic: str
    wanted: LookupWanted
    def __init__(self, topic: _Optional[str] = ..., authoritative: bool = ..., listener: _Optional[str] = ..., wanted: _Optional[_Union[LookupWanted, str]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ["address", "address_tls", "authoritative", "broker_id", "code", "framed_address", "framed_address_tls", "http_address", "message", "partitions", "redirect"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_TLS_FIELD_NUMBER: _ClassVar[int]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    FRAMED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FRAMED_ADDRESS_TLS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_FIELD_NUMBER: _ClassVar[int]
    address: str
    address_tls: str
    authoritative: bool
    broker_id: str
    code: int
    framed_address: str
    framed_address_tls: str
    http_address: str
    message: str
    partitions: int
    redirect: bool
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., redirect: bool = ..., address: _Optional[str] = ..., broker_id: _Optional[str] = ..., authoritative: bool = ..., http_address: _Optional[str] = ..., partitions: _Optional[int] = ..., framed_address: _Optional[str] = ..., address_tls: _Optional[str] = ..., framed_address_tls: _Optional[str] = ...) -> None: ...

class LookupsRequest(_message.Message):
    __slots__ = ["lookups"]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    lookups: _containers.RepeatedCompositeFieldContainer[LookupRequest]
    def __init__(self, lookups: _Optional[_Iterable[_Union[LookupRequest, _Mapping]]] = ...) -> None: ...

class LookupsResponse(_message.Message):
    __slots__ = ["answers"]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[LookupResponse]
    def __init__(self, answers: _Optional[_Iterable[_Union[LookupResponse, _Mapping]]] = ...) -> None: ...

class MessageId(_message.Message):
    __slots__ = ["batch_index", "entry", "ledger"]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    batch_index: int
    entry: int
    ledger: int
    def __init__(self, ledger: _Optional[int] = ..., entry: _Optional[int] = ..., batch_index: _Optional[int] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ["access_mode", "encrypts", "epoch", "initial_subscription", "instance", "producer_id", "producer_name", "properties", "request_id", "schema", "takes_over", "topic", "topic_epoch", "was_open"]
    class PropertiesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TAKES_OVER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WAS_OPEN_FIELD_NUMBER: _ClassVar[int]
    access_mode: AccessMode
    encrypts: bool
    epoch: int
    initial_subscription: str
    instance: int
    producer_id: int
    producer_name: str
    properties: _containers.ScalarMap[str, str]
    request_id: int
    schema: Schema
    takes_over: bool
    topic: str
    topic_epoch: int
    was_open: bool
    def __init__(self, request_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., topic: _Optional[str] = ..., producer_name: _Optional[str] = ..., epoch: _Optional[int] = ..., access_mode: _Optional[_Union[AccessMode, str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., topic_epoch: _Optional[int] = ..., instance: _Optional[int] = ..., takes_over: bool = ..., was_open: bool = ..., initial_subscription: _Optional[str] = ..., encrypts: bool = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ["code", "message", "request_id"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ["admin_key", "broker_id", "from_instance", "instance_id"]
    ADMIN_KEY_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    admin_key: str
    broker_id: str
    from_instance: str
    instance_id: str
    def __init__(self, broker_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., admin_key: _Optional[str] = ..., from_instance: _Optional[str] = ...) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ["broker_id", "bundles", "draining", "group_bundles", "instance_id", "loop_lag_ms", "metadata_away", "serving", "usage_percent"]
    class GroupBundlesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    GROUP_BUNDLES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LOOP_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_AWAY_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    USAGE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    bundles: int
    draining: bool
    group_bundles: _containers.ScalarMap[str, int]
    instance_id: str
    loop_lag_ms: float
    metadata_away: bool
    serving: bool
    usage_percent: int
    def __init__(self, broker_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., serving: bool = ..., loop_lag_ms: _Optional[float] = ..., bundles: _Optional[int] = ..., draining: bool = ..., metadata_away: bool = ..., usage_percent: _Optional[int] = ..., group_bundles: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ProducerClosed(_message.Message):
    __slots__ = ["code", "message", "moved_to", "producer_id"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    moved_to: BrokerAddresses
    producer_id: int
    def __init__(self, producer_id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., moved_to: _Optional[_Union[BrokerAddresses, _Mapping]] = ...) -> None: ...

class ProducerOpened(_message.Message):
    __slots__ = ["deduplication", "last_sequence_id", "max_message_bytes", "outcome", "producer_id", "producer_name", "queued", "schema_version", "topic_epoch"]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    deduplication: bool
    last_sequence_id: int
    max_message_bytes: int
    outcome: Outcome
    producer_id: int
    producer_name: str
    queued: bool
    schema_version: bytes
    topic_epoch: int
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., last_sequence_id: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., deduplication: bool = ..., schema_version: _Optional[bytes] = ..., queued: bool = ..., topic_epoch: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ["close", "counted", "credentials", "entries", "heartbeat", "open", "producer_ids", "sizes"]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    close: _containers.RepeatedCompositeFieldContainer[CloseProducer]
    counted: bool
    credentials: Credentials
    entries: bytes
    heartbeat: bool
    open: _containers.RepeatedCompositeFieldContainer[OpenProducer]
    producer_ids: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, open: _Optional[_Iterable[_Union[OpenProducer, _Mapping]]] = ..., close: _Optional[_Iterable[_Union[CloseProducer, _Mapping]]] = ..., producer_ids: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., counted: bool = ..., heartbeat: bool = ..., credentials: _Optional[_Union[Credentials, _Mapping]] = ..., entries: _Optional[bytes] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ["answered", "ask_credentials", "closed", "counts", "failed", "firsts", "heartbeat", "ledgers", "opened", "outcomes", "producers", "sequence_ids"]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    ASK_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    answered: int
    ask_credentials: bool
    closed: _containers.RepeatedCompositeFieldContainer[ProducerClosed]
    counts: _containers.RepeatedScalarFieldContainer[int]
    failed: _containers.RepeatedCompositeFieldContainer[SendFailed]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    heartbeat: bool
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    opened: _containers.RepeatedCompositeFieldContainer[ProducerOpened]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    producers: _containers.RepeatedScalarFieldContainer[int]
    sequence_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, opened: _Optional[_Iterable[_Union[ProducerOpened, _Mapping]]] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., closed: _Optional[_Iterable[_Union[ProducerClosed, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[SendFailed, _Mapping]]] = ..., producers: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., ledgers: _Optional[_Iterable[int]] = ..., firsts: _Optional[_Iterable[int]] = ..., sequence_ids: _Optional[_Iterable[int]] = ..., answered: _Optional[int] = ..., heartbeat: bool = ..., ask_credentials: bool = ...) -> None: ...

class ReachedEndOfTopic(_message.Message):
    __slots__ = ["consumer_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    def __init__(self, consumer_id: _Optional[int] = ...) -> None: ...

class Redeliver(_message.Message):
    __slots__ = ["consumer_id", "entries", "ledgers", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    entries: _containers.RepeatedScalarFieldContainer[int]
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., ledgers: _Optional[_Iterable[int]] = ..., entries: _Optional[_Iterable[int]] = ..., request_id: _Optional[int] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ["data", "name", "properties", "type"]
    class PropertiesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    name: str
    properties: _containers.ScalarMap[str, str]
    type: int
    def __init__(self, type: _Optional[int] = ..., data: _Optional[bytes] = ..., name: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SchemaRequest(_message.Message):
    __slots__ = ["create", "topic", "version"]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    create: Schema
    topic: str
    version: bytes
    def __init__(self, topic: _Optional[str] = ..., version: _Optional[bytes] = ..., create: _Optional[_Union[Schema, _Mapping]] = ...) -> None: ...

class SchemaResponse(_message.Message):
    __slots__ = ["code", "message", "schema", "version"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    schema: Schema
    version: bytes
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., version: _Optional[bytes] = ...) -> None: ...

class Seek(_message.Message):
    __slots__ = ["consumer_id", "position", "publish_time_ms", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    position: MessageId
    publish_time_ms: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., position: _Optional[_Union[MessageId, _Mapping]] = ..., publish_time_ms: _Optional[int] = ...) -> None: ...

class SendFailed(_message.Message):
    __slots__ = ["code", "message", "producer_id", "sequence_id"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    producer_id: int
    sequence_id: int
    def __init__(self, producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ["consumer_id", "consumer_name", "durable", "initial_position", "key_shared", "only_existing", "priority_level", "properties", "read_compacted", "replica", "request_id", "schema", "start", "start_rollback_seconds", "subscription", "subscription_properties", "topic", "type"]
    class PropertiesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SubscriptionPropertiesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARED_FIELD_NUMBER: _ClassVar[int]
    ONLY_EXISTING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    READ_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    START_ROLLBACK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    consumer_name: str
    durable: bool
    initial_position: InitialPosition
    key_shared: KeySharedPolicy
    only_existing: bool
    priority_level: int
    properties: _containers.ScalarMap[str, str]
    read_compacted: bool
    replica: bool
    request_id: int
    schema: Schema
    start: MessageId
    start_rollback_seconds: int
    subscription: str
    subscription_properties: _containers.ScalarMap[str, str]
    topic: str
    type: SubscriptionType
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., topic: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., consumer_name: _Optional[str] = ..., priority_level: _Optional[int] = ..., durable: bool = ..., start: _Optional[_Union[MessageId, _Mapping]] = ..., initial_position: _Optional[_Union[InitialPosition, str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., read_compacted: bool = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., key_shared: _Optional[_Union[KeySharedPolicy, _Mapping]] = ..., subscription_properties: _Optional[_Mapping[str, str]] = ..., start_rollback_seconds: _Optional[int] = ..., replica: bool = ..., only_existing: bool = ...) -> None: ...

class Subscribed(_message.Message):
    __slots__ = ["consumer_id", "outcome"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., consumer_id: _Optional[int] = ...) -> None: ...

class TakeRequest(_message.Message):
    __slots__ = ["admin_key", "epoch", "later", "namespace", "owner", "range", "tenant"]
    ADMIN_KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LATER_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    admin_key: str
    epoch: int
    later: bool
    namespace: str
    owner: str
    range: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., namespace: _Optional[str] = ..., range: _Optional[str] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., admin_key: _Optional[str] = ..., later: bool = ...) -> None: ...

class TakeResponse(_message.Message):
    __slots__ = ["code", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class TopicsRequest(_message.Message):
    __slots__ = ["after", "known_hash", "limit", "namespace", "non_persistent", "pattern", "wait_ms"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KNOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NON_PERSISTENT_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    after: str
    known_hash: str
    limit: int
    namespace: str
    non_persistent: bool
    pattern: str
    wait_ms: int
    def __init__(self, namespace: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., pattern: _Optional[str] = ..., non_persistent: bool = ..., known_hash: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class TopicsResponse(_message.Message):
    __slots__ = ["code", "hash", "message", "more", "topics"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    code: int
    hash: str
    message: str
    more: bool
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., more: bool = ..., hash: _Optional[str] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ["consumer_id", "force", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    force: bool
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., force: bool = ...) -> None: ...

class AccessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class InitialPosition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class KeySharedMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class LookupWanted(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
