"""The growing delay before a message that was refused several times is delivered again."""

from __future__ import annotations

from dataclasses import dataclass

from pulsarish.client.checks import check_number, check_type
from pulsarish.model.errors import InvalidArgument

__all__ = ["MultiplierRedeliveryBackoff"]


@dataclass(frozen=True, slots=True)
class MultiplierRedeliveryBackoff:
    """The delay of a negative acknowledgement as it grows with the number of deliveries, as in
    Apache Pulsar's Java client.
    """

    min_delay_ms: int = 1_000
    max_delay_ms: int = 60_000
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        check_number("min_delay_ms", self.min_delay_ms, 1)
        check_number("max_delay_ms", self.max_delay_ms, 1)
        check_type("multiplier", self.multiplier, (int, float), "a number of 1 or more")
        if not 0 < self.min_delay_ms <= self.max_delay_ms or self.multiplier < 1:
            raise InvalidArgument(
                "a redelivery back-off needs 0 < min_delay_ms <= max_delay_ms and multiplier >= "
                f"1, not {self.min_delay_ms}, {self.max_delay_ms}, {self.multiplier}"
            )

    def next(self, redelivery_count: int) -> int:
        """The delay in ms before delivery number ``redelivery_count`` + 1."""
        # Past 64 doublings every delay is the greatest; without the limit the power would overflow.
        return int(
            min(
                self.max_delay_ms,
                self.min_delay_ms * self.multiplier ** min(max(0, redelivery_count), 64),
            )
        )
