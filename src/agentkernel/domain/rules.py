"""Under which policy and which precision is a candidate judged?"""

from __future__ import annotations

from typing import Literal

Precision = Literal["strict", "tf32", "bf16"]
Policy = Literal["triton", "mixed", "any"]
