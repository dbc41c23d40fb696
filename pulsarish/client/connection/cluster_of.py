"""Of which cluster a message is, for clients that go from one to another.

A position means something in its own cluster only. So the topic's name, which every message and its
id carry, is marked there with the cluster.
"""

from __future__ import annotations

__all__ = ["TopicOfCluster", "is_of_other_cluster"]


class TopicOfCluster(str):
    """The name of a topic, and the service URL of its cluster."""

    __slots__ = ("cluster",)

    cluster: str

    @classmethod
    def of(cls, topic: str, cluster: str) -> str:
        """Return the marked name; without a cluster the name itself."""
        if not cluster:
            return topic
        made = cls(topic)
        made.cluster = cluster
        return made


def is_of_other_cluster(topic: str, cluster: str) -> bool:
    """Whether a topic's name is marked with another cluster. An id that a program read from its
    bytes has no mark.
    """
    return type(topic) is TopicOfCluster and topic.cluster != cluster
