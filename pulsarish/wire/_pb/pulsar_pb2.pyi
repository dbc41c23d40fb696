from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

AUTHENTICATION_ERROR: ServerError
AUTHORIZATION_ERROR: ServerError
AUTO_SPLIT: KeySharedMode
CHECKSUM_ERROR: ServerError
CONSUMER_ASSIGN_ERROR: ServerError
CONSUMER_BUSY: ServerError
CONSUMER_NOT_FOUND: ServerError
DESCRIPTOR: _descriptor.FileDescriptor
EARLIEST: InitialPosition
EXCLUSIVE: AccessMode
EXCLUSIVE_WITH_FENCING: AccessMode
INCOMPATIBLE_SCHEMA: ServerError
INVALID_TOPIC_NAME: ServerError
INVALID_TXN_STATUS: ServerError
LATEST: InitialPosition
METADATA_ERROR: ServerError
NOT_ALLOWED_ERROR: ServerError
PERSISTENCE_ERROR: ServerError
PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR: ServerError
PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION: ServerError
PRODUCER_BUSY: ServerError
PRODUCER_FENCED: ServerError
SERVICE_NOT_READY: ServerError
SHARED: AccessMode
STICKY: KeySharedMode
SUBSCRIPTION_NOT_FOUND: ServerError
SUB_EXCLUSIVE: SubscriptionType
SUB_FAILOVER: SubscriptionType
SUB_KEY_SHARED: SubscriptionType
SUB_SHARED: SubscriptionType
TOO_MANY_REQUESTS: ServerError
TOPIC_NOT_FOUND: ServerError
TOPIC_TERMINATED_ERROR: ServerError
TRANSACTION_CONFLICT: ServerError
TRANSACTION_COORDINATOR_NOT_FOUND: ServerError
TRANSACTION_NOT_FOUND: ServerError
UNKNOWN_ERROR: ServerError
UNSUPPORTED_VERSION_ERROR: ServerError
WAIT_FOR_EXCLUSIVE: AccessMode

class Ack(_message.Message):
    __slots__ = ["ack_type", "consumer_id", "message_id", "properties", "request_id", "txnid_least_bits", "txnid_most_bits", "validation_error"]
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ACK_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE: Ack.Type
    INDIVIDUAL: Ack.Type
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TXNID_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXNID_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_ERROR_FIELD_NUMBER: _ClassVar[int]
    ack_type: Ack.Type
    consumer_id: int
    message_id: _containers.RepeatedCompositeFieldContainer[MessageIdData]
    properties: _containers.RepeatedCompositeFieldContainer[KeyLongValue]
    request_id: int
    txnid_least_bits: int
    txnid_most_bits: int
    validation_error: int
    def __init__(self, consumer_id: _Optional[int] = ..., ack_type: _Optional[_Union[Ack.Type, str]] = ..., message_id: _Optional[_Iterable[_Union[MessageIdData, _Mapping]]] = ..., validation_error: _Optional[int] = ..., properties: _Optional[_Iterable[_Union[KeyLongValue, _Mapping]]] = ..., txnid_least_bits: _Optional[int] = ..., txnid_most_bits: _Optional[int] = ..., request_id: _Optional[int] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ["consumer_id", "error", "message", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    error: ServerError
    message: str
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., request_id: _Optional[int] = ...) -> None: ...

class ActiveConsumerChange(_message.Message):
    __slots__ = ["consumer_id", "is_active"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    is_active: bool
    def __init__(self, consumer_id: _Optional[int] = ..., is_active: bool = ...) -> None: ...

class AuthChallenge(_message.Message):
    __slots__ = ["challenge", "protocol_version", "server_version"]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    challenge: AuthData
    protocol_version: int
    server_version: str
    def __init__(self, server_version: _Optional[str] = ..., challenge: _Optional[_Union[AuthData, _Mapping]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class AuthData(_message.Message):
    __slots__ = ["auth_data", "auth_method_name"]
    AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    AUTH_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    auth_data: bytes
    auth_method_name: str
    def __init__(self, auth_method_name: _Optional[str] = ..., auth_data: _Optional[bytes] = ...) -> None: ...

class AuthResponse(_message.Message):
    __slots__ = ["client_version", "protocol_version", "response"]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    client_version: str
    protocol_version: int
    response: AuthData
    def __init__(self, client_version: _Optional[str] = ..., response: _Optional[_Union[AuthData, _Mapping]] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class CloseConsumer(_message.Message):
    __slots__ = ["assigned_broker_service_url", "assigned_broker_service_url_tls", "consumer_id", "request_id"]
    ASSIGNED_BROKER_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_BROKER_SERVICE_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    assigned_broker_service_url: str
    assigned_broker_service_url_tls: str
    consumer_id: int
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., assigned_broker_service_url: _Optional[str] = ..., assigned_broker_service_url_tls: _Optional[str] = ...) -> None: ...

class CloseProducer(_message.Message):
    __slots__ = ["assigned_broker_service_url", "assigned_broker_service_url_tls", "producer_id", "request_id"]
    ASSIGNED_BROKER_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_BROKER_SERVICE_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    assigned_broker_service_url: str
    assigned_broker_service_url_tls: str
    producer_id: int
    request_id: int
    def __init__(self, producer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., assigned_broker_service_url: _Optional[str] = ..., assigned_broker_service_url_tls: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ["ack", "ack_response", "active_consumer_change", "add_partition_to_txn", "add_partition_to_txn_response", "add_subscription_to_txn", "add_subscription_to_txn_response", "auth_challenge", "auth_response", "close_consumer", "close_producer", "connect", "connected", "consumer_stats", "consumer_stats_response", "end_txn", "end_txn_on_partition", "end_txn_on_partition_response", "end_txn_on_subscription", "end_txn_on_subscription_response", "end_txn_response", "error", "flow", "get_last_message_id", "get_last_message_id_response", "get_or_create_schema", "get_or_create_schema_response", "get_schema", "get_schema_response", "get_topics_of_namespace", "get_topics_of_namespace_response", "lookup", "lookup_response", "message", "new_txn", "new_txn_response", "partitioned_metadata", "partitioned_metadata_response", "ping", "pong", "producer", "producer_success", "reached_end_of_topic", "redeliver", "seek", "send", "send_error", "send_receipt", "subscribe", "success", "tc_client_connect", "tc_client_connect_response", "type", "unsubscribe", "watch_topic_list", "watch_topic_list_close", "watch_topic_list_success", "watch_topic_update"]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ACK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONSUMER_CHANGE_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITION_TO_TXN_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITION_TO_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ADD_SUBSCRIPTION_TO_TXN_FIELD_NUMBER: _ClassVar[int]
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    AUTH_CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    AUTH_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_STATS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_STATS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_TXN_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_PARTITION_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_SUBSCRIPTION_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    GET_LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    GET_LAST_MESSAGE_ID_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    GET_OR_CREATE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    GET_OR_CREATE_SCHEMA_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    GET_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    GET_SCHEMA_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    GET_TOPICS_OF_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    GET_TOPICS_OF_NAMESPACE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEW_TXN_FIELD_NUMBER: _ClassVar[int]
    NEW_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_METADATA_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_METADATA_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    REACHED_END_OF_TOPIC_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    SEND_ERROR_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    SEND_RECEIPT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    TC_CLIENT_CONNECT_FIELD_NUMBER: _ClassVar[int]
    TC_CLIENT_CONNECT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    WATCH_TOPIC_LIST_CLOSE_FIELD_NUMBER: _ClassVar[int]
    WATCH_TOPIC_LIST_FIELD_NUMBER: _ClassVar[int]
    WATCH_TOPIC_LIST_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    WATCH_TOPIC_UPDATE_FIELD_NUMBER: _ClassVar[int]
    ack: Ack
    ack_response: AckResponse
    active_consumer_change: ActiveConsumerChange
    add_partition_to_txn: TxnRequest
    add_partition_to_txn_response: TxnResponse
    add_subscription_to_txn: TxnRequest
    add_subscription_to_txn_response: TxnResponse
    auth_challenge: AuthChallenge
    auth_response: AuthResponse
    close_consumer: CloseConsumer
    close_producer: CloseProducer
    connect: Connect
    connected: Connected
    consumer_stats: ConsumerStats
    consumer_stats_response: ConsumerStatsResponse
    end_txn: TxnRequest
    end_txn_on_partition: TxnRequest
    end_txn_on_partition_response: TxnResponse
    end_txn_on_subscription: TxnRequest
    end_txn_on_subscription_response: TxnResponse
    end_txn_response: TxnResponse
    error: Error
    flow: Flow
    get_last_message_id: GetLastMessageId
    get_last_message_id_response: GetLastMessageIdResponse
    get_or_create_schema: GetOrCreateSchema
    get_or_create_schema_response: GetOrCreateSchemaResponse
    get_schema: GetSchema
    get_schema_response: GetSchemaResponse
    get_topics_of_namespace: GetTopicsOfNamespace
    get_topics_of_namespace_response: GetTopicsOfNamespaceResponse
    lookup: LookupTopic
    lookup_response: LookupTopicResponse
    message: MessageDelivery
    new_txn: TxnRequest
    new_txn_response: TxnResponse
    partitioned_metadata: PartitionedMetadata
    partitioned_metadata_response: PartitionedMetadataResponse
    ping: Ping
    pong: Pong
    producer: Producer
    producer_success: ProducerSuccess
    reached_end_of_topic: ReachedEndOfTopic
    redeliver: RedeliverUnacknowledgedMessages
    seek: Seek
    send: Send
    send_error: SendError
    send_receipt: SendReceipt
    subscribe: Subscribe
    success: Success
    tc_client_connect: TxnRequest
    tc_client_connect_response: TcClientConnectResponse
    type: int
    unsubscribe: Unsubscribe
    watch_topic_list: WatchTopicList
    watch_topic_list_close: WatchTopicListClose
    watch_topic_list_success: WatchTopicListSuccess
    watch_topic_update: WatchTopicUpdate
    def __init__(self, type: _Optional[int] = ..., connect: _Optional[_Union[Connect, _Mapping]] = ..., connected: _Optional[_Union[Connected, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., producer: _Optional[_Union[Producer, _Mapping]] = ..., send: _Optional[_Union[Send, _Mapping]] = ..., send_receipt: _Optional[_Union[SendReceipt, _Mapping]] = ..., send_error: _Optional[_Union[SendError, _Mapping]] = ..., message: _Optional[_Union[MessageDelivery, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., flow: _Optional[_Union[Flow, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., success: _Optional[_Union[Success, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., close_producer: _Optional[_Union[CloseProducer, _Mapping]] = ..., close_consumer: _Optional[_Union[CloseConsumer, _Mapping]] = ..., producer_success: _Optional[_Union[ProducerSuccess, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., redeliver: _Optional[_Union[RedeliverUnacknowledgedMessages, _Mapping]] = ..., partitioned_metadata: _Optional[_Union[PartitionedMetadata, _Mapping]] = ..., partitioned_metadata_response: _Optional[_Union[PartitionedMetadataResponse, _Mapping]] = ..., lookup: _Optional[_Union[LookupTopic, _Mapping]] = ..., lookup_response: _Optional[_Union[LookupTopicResponse, _Mapping]] = ..., consumer_stats: _Optional[_Union[ConsumerStats, _Mapping]] = ..., consumer_stats_response: _Optional[_Union[ConsumerStatsResponse, _Mapping]] = ..., reached_end_of_topic: _Optional[_Union[ReachedEndOfTopic, _Mapping]] = ..., seek: _Optional[_Union[Seek, _Mapping]] = ..., get_last_message_id: _Optional[_Union[GetLastMessageId, _Mapping]] = ..., get_last_message_id_response: _Optional[_Union[GetLastMessageIdResponse, _Mapping]] = ..., active_consumer_change: _Optional[_Union[ActiveConsumerChange, _Mapping]] = ..., get_topics_of_namespace: _Optional[_Union[GetTopicsOfNamespace, _Mapping]] = ..., get_topics_of_namespace_response: _Optional[_Union[GetTopicsOfNamespaceResponse, _Mapping]] = ..., get_schema: _Optional[_Union[GetSchema, _Mapping]] = ..., get_schema_response: _Optional[_Union[GetSchemaResponse, _Mapping]] = ..., auth_challenge: _Optional[_Union[AuthChallenge, _Mapping]] = ..., auth_response: _Optional[_Union[AuthResponse, _Mapping]] = ..., ack_response: _Optional[_Union[AckResponse, _Mapping]] = ..., get_or_create_schema: _Optional[_Union[GetOrCreateSchema, _Mapping]] = ..., get_or_create_schema_response: _Optional[_Union[GetOrCreateSchemaResponse, _Mapping]] = ..., new_txn: _Optional[_Union[TxnRequest, _Mapping]] = ..., new_txn_response: _Optional[_Union[TxnResponse, _Mapping]] = ..., add_partition_to_txn: _Optional[_Union[TxnRequest, _Mapping]] = ..., add_partition_to_txn_response: _Optional[_Union[TxnResponse, _Mapping]] = ..., add_subscription_to_txn: _Optional[_Union[TxnRequest, _Mapping]] = ..., add_subscription_to_txn_response: _Optional[_Union[TxnResponse, _Mapping]] = ..., end_txn: _Optional[_Union[TxnRequest, _Mapping]] = ..., end_txn_response: _Optional[_Union[TxnResponse, _Mapping]] = ..., end_txn_on_partition: _Optional[_Union[TxnRequest, _Mapping]] = ..., end_txn_on_partition_response: _Optional[_Union[TxnResponse, _Mapping]] = ..., end_txn_on_subscription: _Optional[_Union[TxnRequest, _Mapping]] = ..., end_txn_on_subscription_response: _Optional[_Union[TxnResponse, _Mapping]] = ..., tc_client_connect: _Optional[_Union[TxnRequest, _Mapping]] = ..., tc_client_connect_response: _Optional[_Union[TcClientConnectResponse, _Mapping]] = ..., watch_topic_list: _Optional[_Union[WatchTopicList, _Mapping]] = ..., watch_topic_list_success: _Optional[_Union[WatchTopicListSuccess, _Mapping]] = ..., watch_topic_update: _Optional[_Union[WatchTopicUpdate, _Mapping]] = ..., watch_topic_list_close: _Optional[_Union[WatchTopicListClose, _Mapping]] = ...) -> None: ...

class Connect(_message.Message):
    __slots__ = ["auth_data", "auth_method_name", "client_version", "feature_flags", "listener_name", "original_auth_data", "original_auth_method", "original_principal", "protocol_version", "proxy_to_broker_url", "proxy_version", "wants_native_urls"]
    AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    AUTH_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROXY_TO_BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    PROXY_VERSION_FIELD_NUMBER: _ClassVar[int]
    WANTS_NATIVE_URLS_FIELD_NUMBER: _ClassVar[int]
    auth_data: bytes
    auth_method_name: str
    client_version: str
    feature_flags: FeatureFlags
    listener_name: str
    original_auth_data: bytes
    original_auth_method: str
    original_principal: str
    protocol_version: int
    proxy_to_broker_url: str
    proxy_version: str
    wants_native_urls: bool
    def __init__(self, client_version: _Optional[str] = ..., auth_data: _Optional[bytes] = ..., protocol_version: _Optional[int] = ..., auth_method_name: _Optional[str] = ..., proxy_to_broker_url: _Optional[str] = ..., original_principal: _Optional[str] = ..., original_auth_data: _Optional[bytes] = ..., original_auth_method: _Optional[str] = ..., feature_flags: _Optional[_Union[FeatureFlags, _Mapping]] = ..., proxy_version: _Optional[str] = ..., wants_native_urls: bool = ..., listener_name: _Optional[str] = ...) -> None: ...

class Connected(_message.Message):
    __slots__ = ["connect_port", "feature_flags", "max_message_size", "native_urls", "protocol_version", "server_version"]
    CONNECT_PORT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    NATIVE_URLS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    connect_port: int
    feature_flags: FeatureFlags
    max_message_size: int
    native_urls: _containers.RepeatedScalarFieldContainer[str]
    protocol_version: int
    server_version: str
    def __init__(self, server_version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., max_message_size: _Optional[int] = ..., feature_flags: _Optional[_Union[FeatureFlags, _Mapping]] = ..., native_urls: _Optional[_Iterable[str]] = ..., connect_port: _Optional[int] = ...) -> None: ...

class ConsumerStats(_message.Message):
    __slots__ = ["consumer_id", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., consumer_id: _Optional[int] = ...) -> None: ...

class ConsumerStatsResponse(_message.Message):
    __slots__ = ["address", "available_permits", "blocked_consumer_on_unacked_msgs", "connected_since", "consumer_name", "error_code", "error_message", "message_ack_rate", "msg_backlog", "msg_rate_expired", "msg_rate_out", "msg_rate_redeliver", "msg_throughput_out", "request_id", "type", "unacked_messages"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_PERMITS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_CONSUMER_ON_UNACKED_MSGS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_SINCE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ACK_RATE_FIELD_NUMBER: _ClassVar[int]
    MSG_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    MSG_RATE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    MSG_RATE_OUT_FIELD_NUMBER: _ClassVar[int]
    MSG_RATE_REDELIVER_FIELD_NUMBER: _ClassVar[int]
    MSG_THROUGHPUT_OUT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    UNACKED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    address: str
    available_permits: int
    blocked_consumer_on_unacked_msgs: bool
    connected_since: str
    consumer_name: str
    error_code: ServerError
    error_message: str
    message_ack_rate: float
    msg_backlog: int
    msg_rate_expired: float
    msg_rate_out: float
    msg_rate_redeliver: float
    msg_throughput_out: float
    request_id: int
    type: str
    unacked_messages: int
    def __init__(self, request_id: _Optional[int] = ..., error_code: _Optional[_Union[ServerError, str]] = ..., error_message: _Optional[str] = ..., msg_rate_out: _Optional[float] = ..., msg_throughput_out: _Optional[float] = ..., msg_rate_redeliver: _Optional[float] = ..., consumer_name: _Optional[str] = ..., available_permits: _Optional[int] = ..., unacked_messages: _Optional[int] = ..., blocked_consumer_on_unacked_msgs: bool = ..., address: _Optional[str] = ..., connected_since: _Optional[str] = ..., type: _Optional[str] = ..., msg_rate_expired: _Optional[float] = ..., msg_backlog: _Optional[int] = ..., message_ack_rate: _Optional[float] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ["error", "message", "request_id"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    error: ServerError
    message: str
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class FeatureFlags(_message.Message):
    __slots__ = ["supports_auth_refresh", "supports_broker_entry_metadata", "supports_get_partitioned_metadata_without_auto_creation", "supports_partial_producer", "supports_topic_watchers"]
    SUPPORTS_AUTH_REFRESH_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_BROKER_ENTRY_METADATA_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_GET_PARTITIONED_METADATA_WITHOUT_AUTO_CREATION_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_PARTIAL_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_TOPIC_WATCHERS_FIELD_NUMBER: _ClassVar[int]
    supports_auth_refresh: bool
    supports_broker_entry_metadata: bool
    supports_get_partitioned_metadata_without_auto_creation: bool
    supports_partial_producer: bool
    supports_topic_watchers: bool
    def __init__(self, supports_auth_refresh: bool = ..., supports_broker_entry_metadata: bool = ..., supports_partial_producer: bool = ..., supports_topic_watchers: bool = ..., supports_get_partitioned_metadata_without_auto_creation: bool = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ["consumer_id", "message_permits"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_PERMITS_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    message_permits: int
    def __init__(self, consumer_id: _Optional[int] = ..., message_permits: _Optional[int] = ...) -> None: ...

class GetLastMessageId(_message.Message):
    __slots__ = ["consumer_id", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ...) -> None: ...

class GetLastMessageIdResponse(_message.Message):
    __slots__ = ["consumer_mark_delete_position", "last_message_id", "request_id"]
    CONSUMER_MARK_DELETE_POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_mark_delete_position: MessageIdData
    last_message_id: MessageIdData
    request_id: int
    def __init__(self, last_message_id: _Optional[_Union[MessageIdData, _Mapping]] = ..., request_id: _Optional[int] = ..., consumer_mark_delete_position: _Optional[_Union[MessageIdData, _Mapping]] = ...) -> None: ...

class GetOrCreateSchema(_message.Message):
    __slots__ = ["request_id", "schema", "topic"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    schema: Schema
    topic: str
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ...) -> None: ...

class GetOrCreateSchemaResponse(_message.Message):
    __slots__ = ["error_code", "error_message", "request_id", "schema_version"]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    error_code: ServerError
    error_message: str
    request_id: int
    schema_version: bytes
    def __init__(self, request_id: _Optional[int] = ..., error_code: _Optional[_Union[ServerError, str]] = ..., error_message: _Optional[str] = ..., schema_version: _Optional[bytes] = ...) -> None: ...

class GetSchema(_message.Message):
    __slots__ = ["request_id", "schema_version", "topic"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    schema_version: bytes
    topic: str
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., schema_version: _Optional[bytes] = ...) -> None: ...

class GetSchemaResponse(_message.Message):
    __slots__ = ["error_code", "error_message", "request_id", "schema", "schema_version"]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    error_code: ServerError
    error_message: str
    request_id: int
    schema: Schema
    schema_version: bytes
    def __init__(self, request_id: _Optional[int] = ..., error_code: _Optional[_Union[ServerError, str]] = ..., error_message: _Optional[str] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., schema_version: _Optional[bytes] = ...) -> None: ...

class GetTopicsOfNamespace(_message.Message):
    __slots__ = ["mode", "namespace", "request_id", "topics_hash", "topics_pattern"]
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ALL: GetTopicsOfNamespace.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NON_PERSISTENT: GetTopicsOfNamespace.Mode
    PERSISTENT: GetTopicsOfNamespace.Mode
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_PATTERN_FIELD_NUMBER: _ClassVar[int]
    mode: GetTopicsOfNamespace.Mode
    namespace: str
    request_id: int
    topics_hash: str
    topics_pattern: str
    def __init__(self, request_id: _Optional[int] = ..., namespace: _Optional[str] = ..., mode: _Optional[_Union[GetTopicsOfNamespace.Mode, str]] = ..., topics_pattern: _Optional[str] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class GetTopicsOfNamespaceResponse(_message.Message):
    __slots__ = ["changed", "filtered", "request_id", "topics", "topics_hash"]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    filtered: bool
    request_id: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    topics_hash: str
    def __init__(self, request_id: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., filtered: bool = ..., topics_hash: _Optional[str] = ..., changed: bool = ...) -> None: ...

class IntRange(_message.Message):
    __slots__ = ["end", "start"]
    END_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    end: int
    start: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class KeyLongValue(_message.Message):
    __slots__ = ["key", "value"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class KeySharedMeta(_message.Message):
    __slots__ = ["allow_out_of_order_delivery", "hash_ranges", "key_shared_mode"]
    ALLOW_OUT_OF_ORDER_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    HASH_RANGES_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARED_MODE_FIELD_NUMBER: _ClassVar[int]
    allow_out_of_order_delivery: bool
    hash_ranges: _containers.RepeatedCompositeFieldContainer[IntRange]
    key_shared_mode: KeySharedMode
    def __init__(self, key_shared_mode: _Optional[_Union[KeySharedMode, str]] = ..., hash_ranges: _Optional[_Iterable[_Union[IntRange, _Mapping]]] = ..., allow_out_of_order_delivery: bool = ...) -> None: ...

class KeyValue(_message.Message):
    __slots__ = ["key", "value"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class LookupTopic(_message.Message):
    __slots__ = ["advertised_listener_name", "authoritative", "request_id", "topic"]
    ADVERTISED_LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    advertised_listener_name: str
    authoritative: bool
    request_id: int
    topic: str
    def __init__(self, topic: _Optional[str] = ..., request_id: _Optional[int] = ..., authoritative: bool = ..., advertised_listener_name: _Optional[str] = ...) -> None: ...

class LookupTopicResponse(_message.Message):
    __slots__ = ["authoritative", "broker_service_url", "broker_service_url_tls", "error", "message", "proxy_through_service_url", "request_id", "response"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    BROKER_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    BROKER_SERVICE_URL_TLS_FIELD_NUMBER: _ClassVar[int]
    CONNECT: LookupTopicResponse.Outcome
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILED: LookupTopicResponse.Outcome
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROXY_THROUGH_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    REDIRECT: LookupTopicResponse.Outcome
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    authoritative: bool
    broker_service_url: str
    broker_service_url_tls: str
    error: ServerError
    message: str
    proxy_through_service_url: bool
    request_id: int
    response: LookupTopicResponse.Outcome
    def __init__(self, broker_service_url: _Optional[str] = ..., broker_service_url_tls: _Optional[str] = ..., response: _Optional[_Union[LookupTopicResponse.Outcome, str]] = ..., request_id: _Optional[int] = ..., authoritative: bool = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ..., proxy_through_service_url: bool = ...) -> None: ...

class MessageDelivery(_message.Message):
    __slots__ = ["ack_set", "consumer_epoch", "consumer_id", "message_id", "redelivery_count"]
    ACK_SET_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ack_set: _containers.RepeatedScalarFieldContainer[int]
    consumer_epoch: int
    consumer_id: int
    message_id: MessageIdData
    redelivery_count: int
    def __init__(self, consumer_id: _Optional[int] = ..., message_id: _Optional[_Union[MessageIdData, _Mapping]] = ..., redelivery_count: _Optional[int] = ..., ack_set: _Optional[_Iterable[int]] = ..., consumer_epoch: _Optional[int] = ...) -> None: ...

class MessageIdData(_message.Message):
    __slots__ = ["ack_set", "batch_index", "batch_size", "entry_id", "ledger_id", "partition"]
    ACK_SET_FIELD_NUMBER: _ClassVar[int]
    BATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ack_set: _containers.RepeatedScalarFieldContainer[int]
    batch_index: int
    batch_size: int
    entry_id: int
    ledger_id: int
    partition: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., partition: _Optional[int] = ..., batch_index: _Optional[int] = ..., ack_set: _Optional[_Iterable[int]] = ..., batch_size: _Optional[int] = ...) -> None: ...

class PartitionedMetadata(_message.Message):
    __slots__ = ["metadata_auto_creation_enabled", "request_id", "topic"]
    METADATA_AUTO_CREATION_ENABLED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    metadata_auto_creation_enabled: bool
    request_id: int
    topic: str
    def __init__(self, topic: _Optional[str] = ..., request_id: _Optional[int] = ..., metadata_auto_creation_enabled: bool = ...) -> None: ...

class PartitionedMetadataResponse(_message.Message):
    __slots__ = ["error", "message", "partitions", "request_id", "response"]
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILED: PartitionedMetadataResponse.Outcome
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS: PartitionedMetadataResponse.Outcome
    error: ServerError
    message: str
    partitions: int
    request_id: int
    response: PartitionedMetadataResponse.Outcome
    def __init__(self, partitions: _Optional[int] = ..., request_id: _Optional[int] = ..., response: _Optional[_Union[PartitionedMetadataResponse.Outcome, str]] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Pong(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Producer(_message.Message):
    __slots__ = ["encrypted", "epoch", "initial_subscription_name", "metadata", "producer_access_mode", "producer_id", "producer_name", "request_id", "schema", "topic", "topic_epoch", "txn_enabled", "user_provided_producer_name"]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SUBSCRIPTION_NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TXN_ENABLED_FIELD_NUMBER: _ClassVar[int]
    USER_PROVIDED_PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    encrypted: bool
    epoch: int
    initial_subscription_name: str
    metadata: _containers.RepeatedCompositeFieldContainer[KeyValue]
    producer_access_mode: AccessMode
    producer_id: int
    producer_name: str
    request_id: int
    schema: Schema
    topic: str
    topic_epoch: int
    txn_enabled: bool
    user_provided_producer_name: bool
    def __init__(self, topic: _Optional[str] = ..., producer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., encrypted: bool = ..., metadata: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., epoch: _Optional[int] = ..., user_provided_producer_name: bool = ..., producer_access_mode: _Optional[_Union[AccessMode, str]] = ..., topic_epoch: _Optional[int] = ..., txn_enabled: bool = ..., initial_subscription_name: _Optional[str] = ...) -> None: ...

class ProducerSuccess(_message.Message):
    __slots__ = ["last_sequence_id", "producer_name", "producer_ready", "request_id", "schema_version", "topic_epoch"]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_READY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_EPOCH_FIELD_NUMBER: _ClassVar[int]
    last_sequence_id: int
    producer_name: str
    producer_ready: bool
    request_id: int
    schema_version: bytes
    topic_epoch: int
    def __init__(self, request_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., last_sequence_id: _Optional[int] = ..., schema_version: _Optional[bytes] = ..., topic_epoch: _Optional[int] = ..., producer_ready: bool = ...) -> None: ...

class ReachedEndOfTopic(_message.Message):
    __slots__ = ["consumer_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    def __init__(self, consumer_id: _Optional[int] = ...) -> None: ...

class RedeliverUnacknowledgedMessages(_message.Message):
    __slots__ = ["consumer_epoch", "consumer_id", "message_ids"]
    CONSUMER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    consumer_epoch: int
    consumer_id: int
    message_ids: _containers.RepeatedCompositeFieldContainer[MessageIdData]
    def __init__(self, consumer_id: _Optional[int] = ..., message_ids: _Optional[_Iterable[_Union[MessageIdData, _Mapping]]] = ..., consumer_epoch: _Optional[int] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ["name", "properties", "schema_data", "type"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_DATA_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    properties: _containers.RepeatedCompositeFieldContainer[KeyValue]
    schema_data: bytes
    type: int
    def __init__(self, name: _Optional[str] = ..., schema_data: _Optional[bytes] = ..., type: _Optional[int] = ..., properties: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class Seek(_message.Message):
    __slots__ = ["consumer_id", "message_id", "message_publish_time", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    message_id: MessageIdData
    message_publish_time: int
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., message_id: _Optional[_Union[MessageIdData, _Mapping]] = ..., message_publish_time: _Optional[int] = ...) -> None: ...

class Send(_message.Message):
    __slots__ = ["highest_sequence_id", "is_chunk", "marker", "num_messages", "producer_id", "sequence_id", "txnid_least_bits", "txnid_most_bits"]
    HIGHEST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_CHUNK_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    NUM_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    TXNID_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXNID_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    highest_sequence_id: int
    is_chunk: bool
    marker: bool
    num_messages: int
    producer_id: int
    sequence_id: int
    txnid_least_bits: int
    txnid_most_bits: int
    def __init__(self, producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., num_messages: _Optional[int] = ..., txnid_least_bits: _Optional[int] = ..., txnid_most_bits: _Optional[int] = ..., highest_sequence_id: _Optional[int] = ..., is_chunk: bool = ..., marker: bool = ...) -> None: ...

class SendError(_message.Message):
    __slots__ = ["error", "message", "producer_id", "sequence_id"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    error: ServerError
    message: str
    producer_id: int
    sequence_id: int
    def __init__(self, producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class SendReceipt(_message.Message):
    __slots__ = ["highest_sequence_id", "message_id", "producer_id", "sequence_id"]
    HIGHEST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    highest_sequence_id: int
    message_id: MessageIdData
    producer_id: int
    sequence_id: int
    def __init__(self, producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., message_id: _Optional[_Union[MessageIdData, _Mapping]] = ..., highest_sequence_id: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ["consumer_epoch", "consumer_id", "consumer_name", "durable", "force_topic_creation", "initial_position", "key_shared_meta", "metadata", "priority_level", "read_compacted", "replicate_subscription_state", "request_id", "schema", "start_message_id", "start_message_rollback_duration_sec", "sub_type", "subscription", "subscription_properties", "topic"]
    CONSUMER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    FORCE_TOPIC_CREATION_FIELD_NUMBER: _ClassVar[int]
    INITIAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARED_META_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    READ_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_SUBSCRIPTION_STATE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    START_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    START_MESSAGE_ROLLBACK_DURATION_SEC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SUB_TYPE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    consumer_epoch: int
    consumer_id: int
    consumer_name: str
    durable: bool
    force_topic_creation: bool
    initial_position: InitialPosition
    key_shared_meta: KeySharedMeta
    metadata: _containers.RepeatedCompositeFieldContainer[KeyValue]
    priority_level: int
    read_compacted: bool
    replicate_subscription_state: bool
    request_id: int
    schema: Schema
    start_message_id: MessageIdData
    start_message_rollback_duration_sec: int
    sub_type: SubscriptionType
    subscription: str
    subscription_properties: _containers.RepeatedCompositeFieldContainer[KeyValue]
    topic: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., sub_type: _Optional[_Union[SubscriptionType, str]] = ..., consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., consumer_name: _Optional[str] = ..., priority_level: _Optional[int] = ..., durable: bool = ..., start_message_id: _Optional[_Union[MessageIdData, _Mapping]] = ..., metadata: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., read_compacted: bool = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., initial_position: _Optional[_Union[InitialPosition, str]] = ..., replicate_subscription_state: bool = ..., force_topic_creation: bool = ..., start_message_rollback_duration_sec: _Optional[int] = ..., key_shared_meta: _Optional[_Union[KeySharedMeta, _Mapping]] = ..., subscription_properties: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., consumer_epoch: _Optional[int] = ...) -> None: ...

class Success(_message.Message):
    __slots__ = ["request_id", "schema"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    schema: Schema
    def __init__(self, request_id: _Optional[int] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ...) -> None: ...

class TcClientConnectResponse(_message.Message):
    __slots__ = ["error", "message", "request_id"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    error: ServerError
    message: str
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class TxnRequest(_message.Message):
    __slots__ = ["request_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class TxnResponse(_message.Message):
    __slots__ = ["error", "message", "request_id"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    error: ServerError
    message: str
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[ServerError, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ["consumer_id", "force", "request_id"]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    force: bool
    request_id: int
    def __init__(self, consumer_id: _Optional[int] = ..., request_id: _Optional[int] = ..., force: bool = ...) -> None: ...

class WatchTopicList(_message.Message):
    __slots__ = ["namespace", "request_id", "topics_hash", "topics_pattern", "watcher_id"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_PATTERN_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    request_id: int
    topics_hash: str
    topics_pattern: str
    watcher_id: int
    def __init__(self, request_id: _Optional[int] = ..., watcher_id: _Optional[int] = ..., namespace: _Optional[str] = ..., topics_pattern: _Optional[str] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class WatchTopicListClose(_message.Message):
    __slots__ = ["request_id", "watcher_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    watcher_id: int
    def __init__(self, request_id: _Optional[int] = ..., watcher_id: _Optional[int] = ...) -> None: ...

class WatchTopicListSuccess(_message.Message):
    __slots__ = ["request_id", "topic", "topics_hash", "watcher_id"]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: _containers.RepeatedScalarFieldContainer[str]
    topics_hash: str
    watcher_id: int
    def __init__(self, request_id: _Optional[int] = ..., watcher_id: _Optional[int] = ..., topic: _Optional[_Iterable[str]] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class WatchTopicUpdate(_message.Message):
    __slots__ = ["deleted_topics", "new_topics", "topics_hash", "watcher_id"]
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEW_TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_HASH_FIELD_NUMBER: _ClassVar[int]
    WATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    deleted_topics: _containers.RepeatedScalarFieldContainer[str]
    new_topics: _containers.RepeatedScalarFieldContainer[str]
    topics_hash: str
    watcher_id: int
    def __init__(self, watcher_id: _Optional[int] = ..., new_topics: _Optional[_Iterable[str]] = ..., deleted_topics: _Optional[_Iterable[str]] = ..., topics_hash: _Optional[str] = ...) -> None: ...

class ServerError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class AccessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class InitialPosition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class KeySharedMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
