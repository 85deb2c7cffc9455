"""Rounds of a campaign: a server, clients who behave, and everything that can happen to them.

A round begins with a running server. Its steps happen at their times; then the disk is well again and everybody must
get on, until there are enough acknowledged commits; then the server ends, and starts, and everybody looks for what they
were promised. A round is over when they have all found it.
"""

import asyncio
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from muster.errors import BadInput
from muster.protocol.apis import ApiKey
from muster.server.control import ask
from tests.kit.kafka import free_ports
from tests.server.campaign import plan
from tests.server.campaign.abuse import Abuser, abuse
from tests.server.campaign.failing_files import Order
from tests.server.campaign.honest import (
    MOST_WAITED_S,
    PATIENCE,
    RECORDS_TOPIC,
    TOPIC,
    Committer,
    Honest,
    Member,
    Observer,
    RealClient,
    RecordConsumer,
    RecordProducer,
    Situation,
)
from tests.server.campaign.process import CampaignServer, NotStarted
from tests.server.raw import Raw, commit_body, fetch_offsets

ROUNDS_A_WORLD = 20
"""Then a new directory, with other settings."""
COMMITS_A_ROUND = 200
MOST_RSS_MB = 1_000
PARTITIONS, RECORD_PARTITIONS = 16, 2
BAD_NEWS = ("Traceback (most recent call last)", "Exception in callback", "never retrieved")
"""What a server's log must never have."""
LOG_TAIL_CHARS = 10_000
ABUSERS_TOPICS = "abuse"


class Failed(Exception):
    """A promise was broken; the campaign ends here."""


@dataclass
class Totals:
    """What a campaign has seen."""

    rounds: int = 0
    restarts: int = 0
    commits: int = 0
    real_commits: int = 0
    records: int = 0
    checks: int = 0
    disk_failures: int = 0
    longest_wait_s: float = 0.0
    longest_start_s: float = 0.0
    most_rss_mb: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        happened = ", ".join(f"{name} {count}" for name, count in sorted(self.happened.items()))
        return (
            f"{self.rounds} rounds, {self.restarts} restarts, {self.commits} acknowledged commits "
            f"({self.real_commits} of a real client's), {self.records} records, {self.checks} checks; "
            f"{self.disk_failures} operations of the disk failed or were slow; longest honest wait "
            f"{self.longest_wait_s:.2f} s, longest start {self.longest_start_s:.2f} s, peak RSS "
            f"{self.most_rss_mb:.0f} MB\n  {happened}"
        )


class Campaign:
    """The rounds that share one data directory. `run` raises `Failed`; `close` ends everything, whatever happened."""

    def __init__(
        self, seed: int, folder: Path, totals: Totals, kinds: Collection[str] = plan.KINDS, reads_log: bool = True
    ) -> None:
        self.seed = seed
        self._kinds = kinds
        self._reads_log = reads_log
        self.totals = totals
        self.world = plan.world(seed)
        self.data = folder / "data"
        self.situation = Situation()
        self.server = CampaignServer(self.data, self.world, free_ports(1)[0])
        self.honest = self._honest()
        self.round: plan.Round | None = None
        self._abusers: list[Abuser] = []
        self._asides: list[threading.Thread] = []
        self._log_read = 0
        self._has_disk_trouble = False
        self._topics = Topics(self)
        self._watchdog = threading.Thread(target=self._watch, daemon=True, name="watchdog")

    def _honest(self) -> list[Honest]:
        def rng(name: str) -> random.Random:
            return random.Random(f"{name} of {self.seed}")

        situation = self.situation
        observer = Observer(situation, "honest-0", range(0), rng("observer"))
        observer.groups = ("honest-0", "honest-1", "members", "static")
        return [
            *(Committer(situation, f"honest-{number}", range(PARTITIONS), rng(f"committer {number}"))
              for number in range(4)),
            *(Member(situation, "members", range(number * 4, number * 4 + 4), rng(f"member {number}"))
              for number in range(2)),
            Member(situation, "static", range(4), rng("static"), "seat"),
            observer,
            *(RecordProducer(situation, number, rng(f"producer {number}")) for number in range(RECORD_PARTITIONS)),
            RecordConsumer(situation, 0, rng("consumer")),
            RealClient(situation, "librdkafka", range(4), rng("real")),
        ]  # fmt: skip

    # The whole.

    def run(self, rounds: int, tell: Callable[[str], None] = lambda line: None) -> None:
        self._start("well", 0)
        self._make_topic()
        self._watchdog.start()
        for client in self.honest:
            client.start()
        self._until(lambda: all(client.checked_life for client in self._clients), "everybody is there")
        for number in range(rounds):
            started = time.monotonic()
            self.round = plan.round_of(self.seed, number, self.world.partitions, self._kinds)
            self._play(number)
            self.totals.rounds += 1
            tell(
                f"seed {self.seed} round {number}: {time.monotonic() - started:.1f} s, "
                f"{'; '.join(str(step) for step in self.round.steps)}; {self.round.ends}, {self.round.starts}"
            )
        code = self._end("stop")
        if code != 0 and not self._has_disk_trouble:
            self.situation.problem(f"the last server ended with {code}")
        self._look_for_problems()

    def close(self) -> None:
        self.situation.is_restarting = True
        self.situation.is_over.set()
        for abuser in self._abusers:
            abuser.leave()
        if self.server.is_running:
            self.server.kill()
        for client in self.honest:
            if client.is_alive():
                client.join(10)
            self.totals.commits += client.commits
            self.totals.checks += client.checks
            self.totals.longest_wait_s = max(self.totals.longest_wait_s, client.longest_wait_s)
            if isinstance(client, RecordProducer):
                self.totals.records += client.records
            if isinstance(client, RealClient):
                self.totals.real_commits += client.commits

    @property
    def _clients(self) -> list[Honest]:
        """Those whose progress is looked at; a real client has pauses of its own."""
        return [client for client in self.honest if not isinstance(client, RealClient)]

    # One round.

    def _play(self, number: int) -> None:
        assert self.round is not None
        commits = self._commits()
        started = time.monotonic()
        heals: list[float] = []
        for place, step in enumerate(self.round.steps):
            time.sleep(max(0.0, started + step.at_s - time.monotonic()))
            self._happen(number, place, step, heals)
            self._look_for_problems()
        if not self.round.ends_in_trouble:
            time.sleep(max(0.0, max(heals, default=0.0) - time.monotonic()))
            self.totals.disk_failures += self.server.heal()
            self._settle(commits)
        ended = self._end(self.round.ends)
        if self.round.ends == "stop" and ended != 0 and not self._has_disk_trouble:
            self.situation.problem(f"a server that was told to stop ended with {ended}")
        self._start(self.round.starts, number)
        self._until(lambda: all(client.checked_life == self.situation.life for client in self._clients), "all is found")
        self._topics.check()
        self._until(lambda: self._commits() - commits >= COMMITS_A_ROUND, f"{COMMITS_A_ROUND} commits")
        self._topics.tidy()

    def _settle(self, commits: int) -> None:
        """After trouble everybody gets on again, and a server with nothing to do does nothing."""
        assert self.round is not None
        now = time.monotonic()
        self._until(lambda: all(client.got_on_at > now for client in self._clients), "everybody gets on")
        self._until(lambda: self._commits() - commits >= COMMITS_A_ROUND, f"{COMMITS_A_ROUND} commits")
        self._topics.settle()
        self._look_for_problems()
        if any(step.details.get("by") == "silent static members" for step in self.round.steps):
            self.situation.resting.set()
            for thread in self._asides:  # those who abuse it are work to do as well
                thread.join(60)
            if not self.server.is_at_rest(MOST_WAITED_S):
                self.situation.problem("BUSY: the server has nothing to do, and its timers never rest")
            self.situation.resting.clear()
            self._look_for_problems()

    def _commits(self) -> int:
        return sum(client.commits for client in self.honest)

    def _happen(self, number: int, place: int, step: plan.Step, heals: list[float]) -> None:
        details, rng = step.details, plan.rng_of(self.seed, number, place)
        match step.kind:
            case "disk":
                self.totals.happened[details["fault"]] += 1
                self._has_disk_trouble = True
                self.server.order(details["order"])
                heals.append(time.monotonic() + details["for_s"])
            case "move":
                self.totals.happened["partitions moved"] += len(details["partitions"])
                self._aside(self._move, details["partitions"], details["away_s"], details["times"])
            case "abuse":
                self.totals.happened[details["by"]] += 1
                abuser = Abuser(self.situation.address, rng, f"{ABUSERS_TOPICS}-{self.seed}-{number}-{place}")
                self._abusers.append(abuser)
                self._aside(abuse, details["by"], abuser)
            case "topics":
                self.totals.happened["topics made and deleted"] += 1
                self._aside(self._topics.change, f"made-{number}-{place}", details["made"], details["deleted"])

    def _aside(self, work: Callable[..., None], *arguments: Any) -> None:
        def worked() -> None:
            try:
                work(*arguments)
            except Exception as error:
                self.situation.problem(f"{work.__name__}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=worked, daemon=True, name=work.__name__)
        thread.start()
        self._asides.append(thread)

    def _move(self, partitions: list[int], away_s: float, times: int) -> None:
        """Let partitions go and take them back, at the operator's door."""
        life = self.situation.life
        for what in ("unload", "load") * times:
            for partition in partitions:
                if self.situation.is_restarting:
                    return
                try:
                    asyncio.run(ask(self.data, {"do": what, "partition": partition}, MOST_WAITED_S))
                except (BadInput, OSError, ValueError) as error:
                    if self.situation.life == life and not self.situation.is_restarting:
                        problem = "HUNG" if isinstance(error, TimeoutError) else "ERROR"
                        self.situation.problem(f"{problem} {what} of partition {partition}: {error}")
            time.sleep(away_s)

    # Ends and starts.

    def _end(self, how: str) -> int:
        self.situation.is_restarting = True
        self.totals.happened["SIGKILL" if how == "kill" else "SIGTERM"] += 1
        assert self.server.process is not None
        if how == "kill":
            self.server.process.kill()
        else:
            self.server.process.terminate()
        try:
            code = self.server.ended()
        except subprocess.TimeoutExpired:
            raise Failed(f"HUNG: a server that was told to stop has not ended for {how}") from None
        for thread in self._asides:
            thread.join(20)
        self._asides.clear()
        for abuser in self._abusers:
            abuser.leave()
        self._abusers.clear()
        self._look_for_problems()
        return code

    def _start(self, how: str, number: int) -> None:
        rng = plan.rng_of(self.seed, number, -1)
        if how == "killed":
            self.totals.happened["SIGKILL at the start"] += 1
            self.server.launch()
            time.sleep(rng.uniform(0.0, 1.2))
            self.server.process.kill()  # type: ignore[union-attr]
            self.server.ended()
        elif how == "disk":
            self._start_on_a_bad_disk(*plan.disk_fault(rng, self.world.partitions))
        started = time.monotonic()
        self._has_disk_trouble = False
        self.server.launch()
        try:
            self.server.wait_until_ready()
        except NotStarted as error:
            raise Failed(f"the server does not start: {error}") from None
        self._is_ready()
        self.totals.longest_start_s = max(self.totals.longest_start_s, time.monotonic() - started)
        self.totals.restarts += 1

    def _is_ready(self) -> None:
        self.situation.address = self.server.address
        self.situation.ready_at = time.monotonic()
        self.situation.life += 1
        self.situation.is_restarting = False

    def _start_on_a_bad_disk(self, name: str, order: Order) -> None:
        """It starts all the same, or says why not."""
        self.totals.happened[f"{name} at the start"] += 1
        self.server.launch(order)
        try:
            self.server.wait_until_ready()
        except NotStarted as error:
            code = self.server.ended()
            if code not in (3, 4):
                self.situation.problem(f"a server on a bad disk ({name}, {order}) ended with {code}: {error}")
        else:
            self.server.process.kill()  # type: ignore[union-attr]
            self.server.ended()
        self._look_for_problems()

    def _make_topic(self) -> None:
        with Raw(self.situation.address) as raw:
            topics = [
                {"name": name, "numPartitions": partitions, "replicationFactor": 1, "assignments": [], "configs": []}
                for name, partitions in ((TOPIC, PARTITIONS), (RECORDS_TOPIC, RECORD_PARTITIONS))
            ]
            answer = raw.ask(ApiKey.CREATE_TOPICS, 5, topics=topics, timeoutMs=5_000, validateOnly=False)
            assert all(topic["errorCode"] == 0 for topic in answer["topics"]), answer

    # Watching.

    def _watch(self) -> None:
        """All the time: memory, and whether everybody gets on.

        A machine that has no time for this thread has none for the others either: how late it comes is not counted as
        time that a client waits.
        """
        late_s, late_at, came_at = 0.0, dict[str, float](), time.monotonic()
        while not self.situation.is_over.wait(0.05):
            late_s += max(time.monotonic() - came_at - 0.1, 0.0)
            came_at = time.monotonic()
            rss_mb = self.server.rss_mb()
            self.totals.most_rss_mb = max(self.totals.most_rss_mb, rss_mb)
            if rss_mb > MOST_RSS_MB:
                self.situation.problem(f"MEMORY: the server has {rss_mb:.0f} MB")
                return
            if self.situation.is_restarting or self.situation.resting.is_set():
                continue
            now, ready_at = time.monotonic(), self.situation.ready_at
            for client in self._clients:
                waited_s = now - max(client.got_on_at, ready_at)
                if waited_s < MOST_WAITED_S / 10:
                    late_at[client.name] = late_s
                waited_s -= late_s - late_at.get(client.name, late_s)
                if waited_s > MOST_WAITED_S + 2 and not self.situation.is_restarting:
                    self.situation.problem(f"HUNG {client.name}: it has not got on for {waited_s:.0f} s")
                    return

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait; the watchdog sees to it that nobody waits too long."""
        deadline = time.monotonic() + 6 * MOST_WAITED_S
        while not condition():
            self._look_for_problems()
            if time.monotonic() > deadline:
                raise Failed(f"HUNG: waited in vain until {what}")
            time.sleep(0.01)
        self._look_for_problems()

    def _look_for_problems(self) -> None:
        self._read_log()
        if not self.situation.is_restarting and not self.server.is_running:
            self.situation.problem(f"DEAD: the server ended by itself, with {self.server.ended()}")
        if self.situation.problems:
            raise Failed("\n".join(self.situation.problems[:10]))

    def _read_log(self) -> None:
        with self.server.log.open("rb") as log:
            log.seek(self._log_read)
            text = log.read()
        self._log_read += len(text)
        for news in BAD_NEWS:
            if self._reads_log and news.encode() in text:
                self.situation.problem(f"LOG: {news}")

    def told(self) -> str:
        """What was asked of the server, what it said last, and where it is."""
        self.server.tell_where_it_is()
        text = self.server.log.read_text(errors="replace")
        first_bad = min((place for news in BAD_NEWS if (place := text.find(news)) >= 0), default=None)
        excerpt = "" if first_bad is None else f"its first bad news:\n{text[first_bad : first_bad + 3_000]}\n"
        steps = [] if self.round is None else [*map(str, self.round.steps), f"ends: {self.round.ends}"]
        return "\n".join(
            [f"world: {self.world}", *(f"  {step}" for step in steps), excerpt, "the end of its log:",
             text[-LOG_TAIL_CHARS:]]
        )  # fmt: skip


class Topics:
    """Topics that come and go, with a group that has commits in each."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._there: dict[str, int] = {}
        self._deleted: set[str] = set()
        self._forgotten: set[str] = set()
        """Those of the deleted ones whose commits were seen to be gone."""
        self._guard = threading.Lock()

    def change(self, prefix: str, made: int, deleted: int) -> None:
        situation = self._campaign.situation
        life = situation.life
        try:
            with self._guard, Raw(situation.address, MOST_WAITED_S) as raw:
                for number in range(made):
                    self._make(raw, f"{prefix}-{number}", 1 + number)
                for name in list(self._there)[:deleted]:
                    self._delete(raw, name)
        except (EOFError, OSError) as error:
            if situation.life == life and not situation.is_restarting:
                time.sleep(0.5)
                if situation.life == life and not situation.is_restarting:
                    situation.problem(f"HUNG or dropped while changing topics: {error or type(error).__name__}")

    def _make(self, raw: Raw, name: str, partitions: int) -> None:
        topic = {"name": name, "numPartitions": partitions, "replicationFactor": 1, "assignments": [], "configs": []}
        answer = raw.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeoutMs=5_000, validateOnly=False)
        if answer["topics"][0]["errorCode"] != 0:
            return  # no room, or the disk
        self._there[name] = partitions
        raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(f"of-{name}", name, {0: 1}))

    def _delete(self, raw: Raw, name: str) -> None:
        del self._there[name]  # if it fails, nobody knows
        answer = raw.ask(ApiKey.DELETE_TOPICS, 5, topicNames=[name], timeoutMs=5_000)
        if answer["responses"][0]["errorCode"] == 0:
            self._deleted.add(name)

    def settle(self) -> None:
        """When all partitions are served: commits in deleted topics are gone, and were not only out of sight."""
        situation = self._campaign.situation
        with self._guard, Raw(situation.address, MOST_WAITED_S) as raw:
            for name in self._deleted - self._forgotten:
                offsets = self._offsets(raw, f"of-{name}")
                if offsets:
                    situation.problem(f"topic {name} was deleted, and commits in it are not: {offsets}")
                self._forgotten.add(name)

    def check(self) -> None:
        """Behind a restart: what was made is there, what was deleted is not, nor are the commits that were gone."""
        problem = self._campaign.situation.problem
        with self._guard, Raw(self._campaign.situation.address, MOST_WAITED_S) as raw:
            answer = raw.ask(ApiKey.METADATA, 5, topics=None, allowAutoTopicCreation=False)
            found = {topic["name"]: len(topic["partitions"]) for topic in answer["topics"]}
            for name, partitions in self._there.items():
                if found.get(name) != partitions:
                    problem(f"LOST topic {name} of {partitions} partitions; there are {found.get(name)}")
            for name in self._deleted & found.keys():
                problem(f"topic {name} was deleted, and is there again")
            for name in self._forgotten:
                offsets = self._offsets(raw, f"of-{name}")
                if offsets:
                    problem(f"topic {name} was deleted, and commits in it are there again: {offsets}")
            self._deleted.clear()
            self._forgotten.clear()
        self._campaign._look_for_problems()

    def _offsets(self, raw: Raw, group: str) -> dict[tuple[str, int], int]:
        deadline = time.monotonic() + MOST_WAITED_S
        while True:
            error, offsets = fetch_offsets(raw, group)
            if error not in PATIENCE or time.monotonic() > deadline:
                return offsets
            time.sleep(0.02)

    def tidy(self) -> None:
        """Delete what abusers have made, or every start would take longer."""
        with self._guard, Raw(self._campaign.situation.address, MOST_WAITED_S) as raw:
            answer = raw.ask(ApiKey.METADATA, 5, topics=None, allowAutoTopicCreation=False)
            names = [one["name"] for one in answer["topics"] if one["name"].startswith(ABUSERS_TOPICS)]
            for name in names:
                raw.ask(ApiKey.DELETE_TOPICS, 5, topicNames=[name], timeoutMs=5_000)


@cache
def _compile_kernels() -> None:
    """Here and once: a server that has to do it while it loads takes half a minute longer."""
    subprocess.run([sys.executable, "-m", "muster.codec.columns.warm"], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def _folder(keep_in: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="campaign-", dir=keep_in))
    yield folder
    shutil.rmtree(folder)  # not if anything went wrong


def run(
    seed: int,
    rounds: int,
    totals: Totals,
    *,
    folder: Path | None = None,
    tell: Callable[[str], None] = print,
    kinds: Collection[str] = plan.KINDS,
    reads_log: bool = True,
) -> None:
    """All rounds, in as many worlds as they need, the first with this seed; `Failed` tells everything there is.

    Unless it `reads_log`, a server may say in its log whatever it likes, as long as nothing is lost and nobody hangs.
    """
    for first in range(0, rounds, ROUNDS_A_WORLD):
        world_seed = seed + first // ROUNDS_A_WORLD
        if plan.world(world_seed).in_columns:
            _compile_kernels()
        with _folder(folder) as kept:
            campaign = Campaign(world_seed, kept, totals, kinds, reads_log)
            try:
                campaign.run(min(ROUNDS_A_WORLD, rounds - first), tell)
            except Failed as problem:
                raise Failed(
                    f"seed {world_seed}, round {totals.rounds - first}: {problem}\n{campaign.told()}\n"
                    f"everything is kept in {kept}; again: python -m tests.server.campaign --seed {world_seed}"
                ) from None
            finally:
                campaign.close()
