"""The loop's side: starts jobs, looks at them, cancels them. Any thread may call; one separate thread talks.

If the server is away for a while, nothing ends. A job is then `unreachable`, until the server is back or the link's
patience is over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent import futures
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct, structs

from ralphtool.errors import InvalidValue, RemoteFailed
from ralphtool.executors.temporal.connecting import (
    ACTIVITY,
    MOST_BYTES,
    connect,
    explain,
    is_away,
    is_queue,
    name_queue,
    require_temporal,
)
from ralphtool.settings.executor import ExecutorSettings

if TYPE_CHECKING:
    from temporalio.client import ActivityExecutionDescription, ActivityHandle, Client

_ANSWER = timedelta(seconds=5)  # for one call
_PAUSE = 0.25  # seconds between two tries to reach the server
_REMEMBERED = 1000  # the most jobs that are listed

State = Literal["waiting", "running", "done", "failed", "cancelled", "lost", "unreachable"]
_FINAL = ("done", "failed", "cancelled", "lost")
_Answer = TypeVar("_Answer")


class JobLimits(Struct, frozen=True, kw_only=True):
    """How long a job may take, in seconds, and how often it is tried."""

    heartbeat: float = 30.0
    """How long its worker may be silent before another gets it."""
    start_to_close: float = 86400.0
    """How long one try may take."""
    schedule_to_start: float = 3600.0
    """How long it may wait for a worker."""
    attempts: int = 3
    """How often it is tried. A worker that hangs with a free slot can be given one more try, which is lost too."""
    worker: str = ""
    """The only one who may do it; empty: anybody."""


class JobState(Struct, frozen=True, kw_only=True):
    """The last state of a job that the server reported."""

    id: str
    state: State
    worker: str = ""
    """Who has it now, or had it last; empty while it waits."""
    attempt: int = 0
    heartbeat: bytes = b""
    """The newest details that this attempt has told."""
    kind: str = ""
    """Why it failed, for programs: what the worker gave, or `heartbeat`, `schedule_to_start`, `start_to_close` for a
    time that was over, `missing` where the server knows no such job. While it runs: why the attempt before failed."""
    failure: str = ""
    """The same for people."""


class WorkerSeen(Struct, frozen=True, kw_only=True):
    """A worker that has asked for work recently. One whose slots are all busy does not ask."""

    identity: str
    seconds: float
    """How long ago."""


class Link:
    """A connection to the server."""

    def __init__(self, settings: ExecutorSettings, patience: float) -> None:
        self.settings = settings
        self.patience = patience
        self._away_since: float | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="temporal link", daemon=True)
        self._client: Client

    @classmethod
    def open(cls, settings: ExecutorSettings, *, identity: str = "ralphtool run", patience: float = 600.0) -> Link:
        """Raises RemoteFailed if the server can't be reached now; later it may be away for `patience` seconds."""
        require_temporal()
        link = cls(settings, patience)
        link._thread.start()
        try:
            link._client = link._call(connect(settings, identity=identity))
        except BaseException:
            link.close()
            raise
        return link

    def start(self, id: str, payload: bytes, limits: JobLimits, stop: Callable[[], bool] = bool) -> RemoteJob:
        """Starts a job. If one with the same id waits, runs or has ended, that one is returned instead.

        While the server is away it retries, until its patience is over or `stop` returns true (RemoteFailed).
        """
        if len(payload) > MOST_BYTES:
            raise InvalidValue(f"a job of {len(payload)} bytes is too big to send: the maximum is {MOST_BYTES}")
        self._persist(lambda: self._start(id, payload, limits), stop)
        return self.attach(id)

    def attach(self, id: str) -> RemoteJob:
        """A job that was started before, perhaps by a dead run. `look` shows whether it exists."""
        return RemoteJob(self, id)

    def list_workers(self) -> list[WorkerSeen]:
        return self._persist(self._list_workers)

    def list_jobs(self, prefix: str = "") -> list[JobState]:
        """The waiting and running jobs of the queue; the server lists them up to a second late."""
        return self._persist(lambda: self._list_jobs(prefix))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, question: Coroutine[Any, Any, _Answer]) -> _Answer:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    def ask(self, question: Coroutine[Any, Any, _Answer]) -> _Answer | None:
        """The answer; None while the server is away. RemoteFailed if it refuses, or was away for too long."""
        from temporalio.service import RPCError

        try:
            answer = self._call(question)
        except RPCError as error:
            if not is_away(error):
                raise explain(self.settings, error) from None
            self._note_away(error.message)
            return None
        self._away_since = None
        return answer

    def _note_away(self, message: str) -> None:
        now = time.monotonic()
        since = self._away_since = self._away_since or now
        if now - since > self.patience:
            away = f"the Temporal server at {self.settings.address} has not responded for {now - since:.0f} seconds"
            raise RemoteFailed(f"{away} ({message[:200]}): check it, then run the command again")

    def _persist(self, build: Callable[[], Coroutine[Any, Any, _Answer]], stop: Callable[[], bool] = bool) -> _Answer:
        while (answer := self.ask(build())) is None:
            if stop():
                raise RemoteFailed(f"stopped while the Temporal server at {self.settings.address} was not available")
            time.sleep(_PAUSE)
        return answer

    async def _start(self, id: str, payload: bytes, limits: JobLimits) -> bool:
        from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, RetryPolicy
        from temporalio.exceptions import ActivityAlreadyStartedError

        try:
            await self._client.start_activity(
                ACTIVITY,
                payload,
                id=id,
                task_queue=name_queue(self.settings, limits.worker),
                id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=ActivityIDReusePolicy.REJECT_DUPLICATE,
                heartbeat_timeout=timedelta(seconds=limits.heartbeat),
                start_to_close_timeout=timedelta(seconds=limits.start_to_close),
                schedule_to_start_timeout=timedelta(seconds=limits.schedule_to_start),
                retry_policy=RetryPolicy(maximum_attempts=limits.attempts),
                rpc_timeout=_ANSWER,
            )
        except ActivityAlreadyStartedError:  # it has already ended
            return False
        return True

    async def _list_workers(self) -> list[WorkerSeen]:
        from temporalio.api.enums.v1 import TaskQueueType
        from temporalio.api.taskqueue.v1 import TaskQueue
        from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

        request = DescribeTaskQueueRequest(
            namespace=self.settings.namespace,
            task_queue=TaskQueue(name=self.settings.queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        told = await self._client.workflow_service.describe_task_queue(request, timeout=_ANSWER)
        now = time.time()
        return [
            WorkerSeen(identity=one.identity, seconds=max(0.0, now - one.last_access_time.ToNanoseconds() / 1e9))
            for one in told.pollers
        ]

    async def _list_jobs(self, prefix: str) -> list[JobState]:
        listed = self._client.list_activities("ExecutionStatus = 'Running'", limit=_REMEMBERED, rpc_timeout=_ANSWER)
        # Names are compared here: the server's query language has its own quoting rules.
        ids = [one.activity_id async for one in listed if is_queue(self.settings, one.task_queue)]
        jobs = [self.attach(id) for id in ids if id.startswith(prefix)]
        states = await asyncio.gather(*(job.describe() for job in jobs))
        return [state for state in states if state.state not in _FINAL]

    def watch(self, id: str) -> futures.Future[bytes]:
        """A future that is done when a job has ended: the server answers the call only then."""
        return asyncio.run_coroutine_threadsafe(self._watch(id), self._loop)

    async def _watch(self, id: str) -> bytes:
        return await self.handle(id).result()

    def handle(self, id: str) -> ActivityHandle[bytes]:
        return self._client.get_activity_handle(id, result_type=bytes)


class RemoteJob:
    """A job that was started."""

    def __init__(self, link: Link, id: str) -> None:
        self.id = id
        self._link = link
        self._last = JobState(id=id, state="waiting")
        self._result = b""
        self._to_cancel = False
        self._end: futures.Future[bytes] | None = None

    def look(self) -> JobState:
        """One call to the server, and none once the job has ended."""
        if self._last.state in _FINAL:
            return self._last
        if self._to_cancel:
            self._send_cancel()
        seen = self._link.ask(self.describe())
        if seen is None:
            return structs.replace(self._last, state="unreachable")
        self._last = seen
        return seen

    def wait(self, seconds: float) -> None:
        """Returns as soon as the server knows that the job has ended, or after `seconds`."""
        if self._end is None:
            self._end = self._link.watch(self.id)
        ended, _ = futures.wait([self._end], seconds)
        if ended and self._last.state not in _FINAL:
            self._end = None  # `look` shows the reason
            time.sleep(min(seconds, _PAUSE) if ended.pop().exception() else 0)

    def result(self) -> bytes:
        """The worker's return value, for a job that is done."""
        state = self.look()
        if state.state != "done":
            raise RemoteFailed(f"job {self.id} has no result: it is {state.state}")
        return self._result

    def cancel(self) -> None:
        """Asks the job's worker to end it. If the server is away, `look` repeats the request."""
        self._to_cancel = True
        self._send_cancel()

    def _send_cancel(self) -> None:
        if self._link.ask(self._cancel()):
            self._to_cancel = False

    async def _cancel(self) -> bool:
        from temporalio.service import RPCError, RPCStatusCode

        try:
            await self._link.handle(self.id).cancel(rpc_timeout=_ANSWER)
        except RPCError as error:  # it has ended, or never existed: `look` shows which
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION):
                raise
        return True

    async def describe(self) -> JobState:
        """The job's current state on the server."""
        from temporalio.service import RPCError, RPCStatusCode

        try:
            told = await self._link.handle(self.id).describe(
                include_outcome=True, include_heartbeat_details=True, include_last_failure=True, rpc_timeout=_ANSWER
            )
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return JobState(id=self.id, state="lost", kind="missing", failure="the server knows no such job")
        if told.has_result():
            self._result = await told.result(bytes) or b""
        return await _read_state(told)


async def _read_state(told: ActivityExecutionDescription) -> JobState:
    state = _name_state(told)
    kind, failure = _read_failure(await told.outcome_failure() or await told.last_failure())
    return JobState(
        id=told.activity_id,
        state=state,
        worker="" if state == "waiting" else told.last_worker_identity or "",
        attempt=told.attempt,
        heartbeat=_read_heartbeat(await told.heartbeat_details([int, bytes]), told.attempt),
        kind="" if state == "done" else kind,
        failure="" if state == "done" else failure,
    )


def _name_state(told: ActivityExecutionDescription) -> State:
    from temporalio.client import ActivityExecutionStatus as Status
    from temporalio.client import PendingActivityState as Pending

    ended: dict[Status, State] = {
        Status.COMPLETED: "done",
        Status.FAILED: "failed",
        Status.CANCELED: "cancelled",
        Status.TERMINATED: "cancelled",
        Status.TIMED_OUT: "lost",
    }
    waits = told.run_state in (None, Pending.UNSPECIFIED, Pending.SCHEDULED, Pending.PAUSED)
    return ended.get(told.status, "waiting" if waits else "running")


def _read_heartbeat(details: list[Any] | None, attempt: int) -> bytes:
    """This attempt's details: the server keeps those of the previous attempt until there are newer ones."""
    if not details or len(details) != 2 or details[0] != attempt:
        return b""
    return bytes(details[1])


def _read_failure(error: BaseException | None) -> tuple[str, str]:
    from temporalio.exceptions import ApplicationError, TimeoutError

    if isinstance(error, ApplicationError):
        return error.type or "", error.message
    if isinstance(error, TimeoutError):
        return error.type.name.lower() if error.type else "timeout", error.message
    return ("", str(error)) if error else ("", "")
