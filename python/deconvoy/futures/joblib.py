"""joblib on our futures: importing this registers the back end `deconvoy`.

import deconvoy.futures.joblib
with joblib.parallel_config("deconvoy", kind="fork"):
    joblib.Parallel(n_jobs=2)(joblib.delayed(work)(part) for part in parts)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joblib
from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase

from deconvoy.futures import Environment, environment, future, make_environment
from deconvoy.futures.environment import cores


class DeconvoyBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """`kind`: `thread`, `fork` or `dask`, by default that of the present environment; more
    `options`: as for `with_new_environment`."""

    supports_retrieve_callback = True
    supports_timeout = True
    supports_return_generator = True

    def __init__(
        self, kind: str | None = None, nesting_level: int | None = None, **options: Any
    ) -> None:
        kind = kind or environment().kind
        inner_threads = options.pop("inner_max_num_threads", None)
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_threads)
        self.kind = kind
        self.options = options
        self.uses_threads = self.supports_sharedmem = kind == "thread"
        self.environment: Environment | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many run at a time; from -1 on down: all cores but so many less one.

        Raises ValueError for 0.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max(cores() + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **_: Any,
    ) -> int:
        self.parallel = parallel
        self.count = self.effective_n_jobs(n_jobs)
        self.environment = make_environment(self.kind, self.count, **self.options)
        return self.count

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object]) -> Any:
        assert self.environment is not None, "joblib configures a back end before it uses it"
        one = self.environment.submit(func)
        one.add_done_callback(callback)
        return one

    def retrieve_result_callback(self, out: future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()
        if ensure_ready:
            self.configure(self.count, self.parallel)

    def terminate(self) -> None:
        mine, self.environment = self.environment, None
        if mine is not None:
            mine.kill_all()
            mine.shutdown()

    def get_nested_backend(self) -> Any:
        """Of the same kind, once; then one after the other."""
        level = (self.nesting_level or 0) + 1
        if level > 1:
            return super().get_nested_backend()
        return DeconvoyBackend(self.kind, nesting_level=level, **self.options), None


joblib.register_parallel_backend("deconvoy", DeconvoyBackend)
