"""What is wrong with a document, and where."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from controller.wire.document_errors import first_error


class Slow(BaseModel):
    do: Literal["slow"]
    stop: int


class Stop(BaseModel):
    do: Literal["stop"]


EVENT = TypeAdapter[Slow | Stop](Annotated[Slow | Stop, Field(discriminator="do")])


def test_a_part_that_is_called_as_a_kind_is_of_the_document() -> None:
    """Pydantic puts the kind, and that alone, before the place."""
    with pytest.raises(ValidationError) as found:
        EVENT.validate_python({"do": "slow", "stop": "soon"})
    expected = (("stop",), "stop: expected a whole number, not 'soon'")
    assert first_error(found.value, hidden=("slow", "stop")) == expected
