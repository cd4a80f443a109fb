"""How do tensors lie in nested plain data, such as a call's arguments or what it returns?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["tensor", "literal", "tuple", "list", "dict", "node"]


@dataclass(frozen=True, slots=True)
class DataStructure:
    """Nested plain data with its tensors left out; they are counted from left to right.

    `literal` is the text of a "literal" (None, bool, int, float or str); of a "node", which is a
    class that torch's pytree knows, it is pytree's own JSON for one level. `keys` are a dict's, as
    literals in their order, one an item. `items` are what it holds.
    """

    kind: Kind
    literal: str = ""
    keys: tuple[str, ...] = ()
    items: tuple[DataStructure, ...] = ()

    @property
    def text(self) -> str:
        """Equal texts are equal structures: `((*, (*, *)), {'mask': None})`, a star a tensor."""
        inner = [item.text for item in self.items]
        if self.kind == "tensor":
            return "*"
        if self.kind == "literal":
            return self.literal
        if self.kind == "dict":
            pairs = zip(self.keys, inner, strict=True)
            return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
        if self.kind == "list":
            return f"[{', '.join(inner)}]"
        if self.kind == "node":
            return f"{self.literal}({', '.join(inner)})"
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"

    @property
    def tensors(self) -> int:
        """How many tensors it holds."""
        return (self.kind == "tensor") + sum(item.tensors for item in self.items)
