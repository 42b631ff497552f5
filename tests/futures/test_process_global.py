"""A value for the whole process."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from deconvoy.futures import ProcessGlobal


def test_a_value_for_the_process_is_each_threads_own() -> None:
    value = ProcessGlobal({"precision": 17})
    mine = value.get()
    assert value.get() is mine == {"precision": 17}
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(value.get()))
    thread.start()
    thread.join()
    assert others == [mine] and others[0] is not mine
    value.set({"precision": 12})
    assert value.get() == {"precision": 12}
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        value.set(lambda: 1)  # type: ignore[arg-type]
    assert value.get() == {"precision": 12}
    by_hand = ProcessGlobal([1], copy=list)
    assert by_hand.get() == [1]
    with pytest.raises(TypeError):
        ProcessGlobal(3, copy=list).get()  # type: ignore[arg-type]
