"""A store that keeps what it was asked, for tests and for counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from marin_cas.digest import Digest
from marin_cas.store.base import Store
from marin_cas.store.wrapper import Wrapper


@dataclass(frozen=True, slots=True)
class Asked:
    """One call that was answered; for a put, `digests` is what it gave."""

    verb: str
    digests: tuple[Digest, ...]


class RecordingStore(Wrapper):
    """`asked` holds every call that was answered, in the order of the answers, and grows without bound."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[Asked] = []

    def verbs(self) -> Counter[str]:
        """How often each verb was answered."""
        return Counter(asked.verb for asked in self.asked)

    def _ask[T](self, verb: str, digests: tuple[Digest, ...], call: Callable[[], T]) -> T:
        answer = call()
        self.asked.append(Asked(verb, (answer,) if isinstance(answer, Digest) else digests))
        return answer
