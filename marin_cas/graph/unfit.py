"""Why a written value cannot be an attribute's: raised where it is looked at, located where its target is known."""

from __future__ import annotations


class Unfit(ValueError):
    """`text` completes the sentence "attribute `x` of `rule` ..."; `path` leads to the part that is wrong."""

    def __init__(self, text: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(text)
        self.text, self.path, self.hint = text, path, hint

    def below(self, key: int | str) -> Unfit:
        """The same, seen from the list or dict that holds the value at `key`."""
        step = f"[{key}]" if isinstance(key, int) else f'["{key}"]'
        return Unfit(self.text, path=step + self.path, hint=self.hint)
