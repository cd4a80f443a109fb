"""Which models does a zoo hold, how is each built, and on which inputs does it run?"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from agentkernel.domain.base import Frozen

Plain: TypeAlias = str | int | float | bool | None
Argument: TypeAlias = Plain | list[Plain] | dict[str, Plain]
ModelDType = Literal["float32", "float16", "bfloat16"]
ModelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
PART_OF = ":"
"""Between a zoo's name and those of the models that were chosen from it."""
MOST_SEED = 2**63 - 1
"""What torch.manual_seed takes, and SQLite keeps."""


class ZooModel(Frozen):
    """One model, in eval mode and without gradients.

    `model` names a class or a function that gives the module: `package.module:Name`, or
    `path/to/file.py:Name`, relative to the zoo's file. `init` are its keyword arguments. The inputs
    of a call are `inputs`, such as `x=f32[2,16,64]` (integers below 1000: `ids=i64[2,16]<1000`), or
    come from `make_inputs`, named as `model` is, which returns a tuple, or a dict of keyword
    arguments. `dtype`: the module and its floating inputs are cast to it.
    """

    name: ModelName
    model: str = Field(min_length=3)
    init: dict[str, Argument] = Field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    make_inputs: str | None = None
    dtype: ModelDType | None = None
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share of this model in the total, before it is multiplied by its time."""
    seed: int = Field(default=0, ge=0, le=MOST_SEED)


class Zoo(Frozen):
    """The models of one YAML file; `target` and `settings` (dotted keys) hold for all of them.

    `folder` is where relative paths begin. `name` is part of a folder's name; behind a colon it has
    the models that were chosen from the zoo of that name, which no file may say of itself.
    """

    name: str = Field(pattern=r"^\w[\w .-]{0,63}(:[a-z0-9._+-]+)?$")
    models: tuple[ZooModel, ...] = Field(min_length=1)
    target: str | None = None
    settings: dict[str, Plain] = Field(default_factory=dict)
    folder: str = ""
