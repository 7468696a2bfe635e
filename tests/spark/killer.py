"""Kills processes at random moments, in the background."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Self

from tests.spark.processes import kill

__all__ = ["Killer"]


class Killer:
    """SIGKILL for some of the ``victims`` while its block runs: at most so many, and only when ``is_time``."""

    def __init__(
        self, victims: Callable[[], Sequence[int]], is_time: Callable[[], bool], most: int, chance: random.Random
    ) -> None:
        self.deaths = 0
        self._victims = victims
        self._is_time = is_time
        self._most = most
        self._chance = chance
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _kill(self) -> None:
        while self.deaths < self._most and not self._stopping.wait(self._chance.uniform(0.01, 0.3)):
            victims = self._victims()
            if victims and self._is_time():
                kill(self._chance.choice(victims))
                self.deaths += 1
