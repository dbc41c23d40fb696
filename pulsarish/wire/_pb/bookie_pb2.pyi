from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AddRequest(_message.Message):
    __slots__ = ["instance_id", "records", "recovery", "sizes"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    records: bytes
    recovery: bool
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, instance_id: _Optional[str] = ..., recovery: bool = ..., sizes: _Optional[_Iterable[int]] = ..., records: _Optional[bytes] = ...) -> None: ...

class AddResponse(_message.Message):
    __slots__ = ["answered", "codes", "firsts", "lasts", "ledgers"]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    answered: int
    codes: _containers.RepeatedScalarFieldContainer[int]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    lasts: _containers.RepeatedScalarFieldContainer[int]
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, answered: _Optional[int] = ..., ledgers: _Optional[_Iterable[int]] = ..., firsts: _Optional[_Iterable[int]] = ..., lasts: _Optional[_Iterable[int]] = ..., codes: _Optional[_Iterable[int]] = ...) -> None: ...

class AddVolumeRequest(_message.Message):
    __slots__ = ["add", "index_directory", "instance_id", "journal_directory", "ledger_directory"]
    ADD_FIELD_NUMBER: _ClassVar[int]
    INDEX_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    LEDGER_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    add: bool
    index_directory: str
    instance_id: str
    journal_directory: str
    ledger_directory: str
    def __init__(self, instance_id: _Optional[str] = ..., journal_directory: _Optional[str] = ..., ledger_directory: _Optional[str] = ..., index_directory: _Optional[str] = ..., add: bool = ...) -> None: ...

class AddVolumeResponse(_message.Message):
    __slots__ = ["added", "adding", "code", "message", "refusal"]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    added: bool
    adding: bool
    code: int
    message: str
    refusal: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., adding: bool = ..., added: bool = ..., refusal: _Optional[str] = ...) -> None: ...

class ChangeTrashRequest(_message.Message):
    __slots__ = ["instance_id", "ledgers", "restore"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    restore: bool
    def __init__(self, instance_id: _Optional[str] = ..., restore: bool = ..., ledgers: _Optional[_Iterable[int]] = ...) -> None: ...

class ChangeTrashResponse(_message.Message):
    __slots__ = ["code", "ledgers", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., ledgers: _Optional[_Iterable[int]] = ...) -> None: ...

class ClearLimboRequest(_message.Message):
    __slots__ = ["instance_id", "ledger", "times"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    ledger: int
    times: int
    def __init__(self, instance_id: _Optional[str] = ..., ledger: _Optional[int] = ..., times: _Optional[int] = ...) -> None: ...

class ClearLimboResponse(_message.Message):
    __slots__ = ["code", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class CollectGarbageRequest(_message.Message):
    __slots__ = ["begin", "instance_id"]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    begin: bool
    instance_id: str
    def __init__(self, instance_id: _Optional[str] = ..., begin: bool = ...) -> None: ...

class CollectGarbageResponse(_message.Message):
    __slots__ = ["code", "copied_bytes", "ended", "failure", "freed_bytes", "ledgers_deleted", "logs_deleted", "message", "missing_ledgers", "postponed_logs", "stray_bytes", "stray_ledgers", "trash_ledgers", "wanted"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_DELETED_FIELD_NUMBER: _ClassVar[int]
    LOGS_DELETED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MISSING_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    POSTPONED_LOGS_FIELD_NUMBER: _ClassVar[int]
    STRAY_BYTES_FIELD_NUMBER: _ClassVar[int]
    STRAY_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    TRASH_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    code: int
    copied_bytes: int
    ended: int
    failure: str
    freed_bytes: int
    ledgers_deleted: int
    logs_deleted: int
    message: str
    missing_ledgers: int
    postponed_logs: int
    stray_bytes: int
    stray_ledgers: int
    trash_ledgers: int
    wanted: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., ended: _Optional[int] = ..., wanted: _Optional[int] = ..., ledgers_deleted: _Optional[int] = ..., stray_bytes: _Optional[int] = ..., logs_deleted: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., copied_bytes: _Optional[int] = ..., failure: _Optional[str] = ..., missing_ledgers: _Optional[int] = ..., trash_ledgers: _Optional[int] = ..., stray_ledgers: _Optional[int] = ..., postponed_logs: _Optional[int] = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ["instance_id", "ledger", "max_bytes", "more_ledgers", "read_entries"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MORE_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    READ_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    ledger: int
    max_bytes: int
    more_ledgers: _containers.RepeatedScalarFieldContainer[int]
    read_entries: int
    def __init__(self, instance_id: _Optional[str] = ..., ledger: _Optional[int] = ..., more_ledgers: _Optional[_Iterable[int]] = ..., read_entries: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FenceResponse(_message.Message):
    __slots__ = ["code", "codes", "counts", "ends", "firsts", "lac", "lacs", "message", "records", "sizes"]
    CODES_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LACS_FIELD_NUMBER: _ClassVar[int]
    LAC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    code: int
    codes: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    lac: int
    lacs: _containers.RepeatedScalarFieldContainer[int]
    message: str
    records: bytes
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., lac: _Optional[int] = ..., codes: _Optional[_Iterable[int]] = ..., lacs: _Optional[_Iterable[int]] = ..., firsts: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., ends: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., records: _Optional[bytes] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ["first", "instance_id", "last", "ledger"]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    first: int
    instance_id: str
    last: int
    ledger: int
    def __init__(self, instance_id: _Optional[str] = ..., ledger: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ["code", "message", "spans", "until"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    spans: _containers.RepeatedScalarFieldContainer[int]
    until: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., spans: _Optional[_Iterable[int]] = ..., until: _Optional[int] = ...) -> None: ...

class ListLedgersRequest(_message.Message):
    __slots__ = ["after", "instance_id", "limit"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    instance_id: str
    limit: int
    def __init__(self, instance_id: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListLedgersResponse(_message.Message):
    __slots__ = ["code", "ledgers", "message", "more"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    code: int
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    message: str
    more: bool
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., ledgers: _Optional[_Iterable[int]] = ..., more: bool = ...) -> None: ...

class ListTrashRequest(_message.Message):
    __slots__ = ["after", "instance_id", "limit"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    instance_id: str
    limit: int
    def __init__(self, instance_id: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTrashResponse(_message.Message):
    __slots__ = ["code", "ledgers", "message", "more", "since_ms", "size_bytes"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    code: int
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    message: str
    more: bool
    since_ms: _containers.RepeatedScalarFieldContainer[int]
    size_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., ledgers: _Optional[_Iterable[int]] = ..., since_ms: _Optional[_Iterable[int]] = ..., size_bytes: _Optional[_Iterable[int]] = ..., more: bool = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ["ledger", "max_bytes", "may_cache", "request_id", "spans"]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAY_CACHE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ledger: int
    max_bytes: int
    may_cache: bool
    request_id: int
    spans: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[int] = ..., ledger: _Optional[int] = ..., spans: _Optional[_Iterable[int]] = ..., max_bytes: _Optional[int] = ..., may_cache: bool = ...) -> None: ...

class ReadLacRequest(_message.Message):
    __slots__ = ["after_lac", "instance_id", "ledger", "wait_ms"]
    AFTER_LAC_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    after_lac: int
    instance_id: str
    ledger: int
    wait_ms: int
    def __init__(self, instance_id: _Optional[str] = ..., ledger: _Optional[int] = ..., after_lac: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ReadLacResponse(_message.Message):
    __slots__ = ["code", "lac", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    LAC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    lac: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., lac: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ["instance_id", "reads"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    reads: _containers.RepeatedCompositeFieldContainer[Read]
    def __init__(self, instance_id: _Optional[str] = ..., reads: _Optional[_Iterable[_Union[Read, _Mapping]]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ["answered", "records", "results", "sizes"]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    answered: int
    records: bytes
    results: _containers.RepeatedCompositeFieldContainer[ReadResult]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, results: _Optional[_Iterable[_Union[ReadResult, _Mapping]]] = ..., sizes: _Optional[_Iterable[int]] = ..., answered: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class ReadResult(_message.Message):
    __slots__ = ["code", "count", "request_id"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    count: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., count: _Optional[int] = ..., code: _Optional[int] = ...) -> None: ...

class RecoveryReadRequest(_message.Message):
    __slots__ = ["first", "instance_id", "last", "ledger", "max_bytes"]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    first: int
    instance_id: str
    last: int
    ledger: int
    max_bytes: int
    def __init__(self, instance_id: _Optional[str] = ..., ledger: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class RecoveryReadResponse(_message.Message):
    __slots__ = ["code", "message", "records", "sizes"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    records: bytes
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., sizes: _Optional[_Iterable[int]] = ..., records: _Optional[bytes] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ["bookie_id", "free_bytes", "instance_id", "journal_queue_bytes", "ledgers", "read_only", "seen", "write_cache_bytes"]
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    WRITE_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    free_bytes: int
    instance_id: str
    journal_queue_bytes: int
    ledgers: int
    read_only: bool
    seen: _containers.RepeatedScalarFieldContainer[int]
    write_cache_bytes: int
    def __init__(self, instance_id: _Optional[str] = ..., bookie_id: _Optional[str] = ..., read_only: bool = ..., free_bytes: _Optional[int] = ..., ledgers: _Optional[int] = ..., journal_queue_bytes: _Optional[int] = ..., write_cache_bytes: _Optional[int] = ..., seen: _Optional[_Iterable[int]] = ...) -> None: ...

class VolumeRequest(_message.Message):
    __slots__ = ["directory", "instance_id", "remove"]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    directory: str
    instance_id: str
    remove: bool
    def __init__(self, instance_id: _Optional[str] = ..., directory: _Optional[str] = ..., remove: bool = ...) -> None: ...

class VolumeResponse(_message.Message):
    __slots__ = ["closed_ledgers", "code", "draining", "failure", "looked", "message", "open_ledgers", "reasons", "refusal", "removed", "removing", "waiting"]
    CLOSED_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OPEN_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    closed_ledgers: int
    code: int
    draining: bool
    failure: str
    looked: bool
    message: str
    open_ledgers: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    refusal: str
    removed: bool
    removing: bool
    waiting: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., draining: bool = ..., looked: bool = ..., closed_ledgers: _Optional[int] = ..., open_ledgers: _Optional[int] = ..., waiting: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[str]] = ..., failure: _Optional[str] = ..., removing: bool = ..., removed: bool = ..., refusal: _Optional[str] = ...) -> None: ...

class WriteLacsRequest(_message.Message):
    __slots__ = ["instance_id", "lacs", "ledgers"]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LACS_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    lacs: _containers.RepeatedScalarFieldContainer[int]
    ledgers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, instance_id: _Optional[str] = ..., ledgers: _Optional[_Iterable[int]] = ..., lacs: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteLacsResponse(_message.Message):
    __slots__ = ["codes"]
    CODES_FIELD_NUMBER: _ClassVar[int]
    codes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, codes: _Optional[_Iterable[int]] = ...) -> None: ...
