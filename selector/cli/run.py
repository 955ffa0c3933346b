"""`ddte run`: pass times, data, training, evaluation, export and a sample of decoded text from one configuration.

Each stage skips what is already there, so an interrupted run goes on with the same command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from data_gen.estimate import estimate
from data_gen.pipeline import generate
from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import plan_units
from selector.artifacts.claims import claim_folder, refuse_other_run, sole_writer
from selector.artifacts.loading import read_json
from selector.artifacts.writing import as_json, atomic_write, write_json
from selector.cli.next_command import QUESTION, command
from selector.config import EMBEDDED_TARGET, Config
from selector.dataset.dataset import RootDataset
from selector.decoding.decoder import Decoder
from selector.decoding.pass_times import measure_undisturbed
from selector.decoding.policies import fixed_policy
from selector.decoding.profiling import measure_profile
from selector.distributions import Sampling
from selector.engine.huggingface import Pair, check_placement, load_pair
from selector.errors import UserError
from selector.evaluation.evaluate import evaluate
from selector.evaluation.report.prose import answer, combinations
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.training.export import export
from selector.training.fit import train
from selector.training.preflight import check_config as check_train
from selector.training.run_folder import RunFolder

SAMPLE_PROMPT = "Write three sentences about a lighthouse keeper who learns to bake bread."


class Chain:
    """The stages of one run and where they put what they make."""

    def __init__(self, config: Config, out: Path, console: Console, given: Sequence[str] = ()) -> None:
        self.config, self.out, self.console, self.given = config, out, console, given
        self.profile_path = out / "profile.json"
        self.data_path = out / "data"
        self.train_path = out / "train"
        self.report_path = out / "report"
        self.checkpoint_path = out / "checkpoints"
        self._pair: Pair | None = None

    def say(self, text: str) -> None:
        """Print a text as it is, on one line however long."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @property
    def pair(self) -> Pair:
        """Both models, loaded when a stage first needs them."""
        if self._pair is None:
            first_use = " (the embedded one is unpacked on first use, 540 MB)"
            self.console.print(f"Loading the models{first_use * (self.config.pair.target == EMBEDDED_TARGET)} ...")
            self._pair = load_pair(self.config.pair)
        return self._pair

    def profile(self) -> None:
        """Measure this machine's pass times."""
        if not self.profile_path.exists():
            limits, inputs = self.config.action_space.limits, self.config.train.inputs
            measure = partial(measure_profile, self.pair, action_space=limits, inputs=inputs)
            measure_undisturbed(measure, self.say).save(self.profile_path)

    def generate(self) -> None:
        """Make the data set, or what is missing of it."""
        generate(self.config, self.data_path, pair=self.pair, console=self.console)

    def train(self) -> None:
        """Train one selector a verifier, from where an interrupted training stopped."""
        train(self.data_path, self.latency, self.config.train, self.train_path, self.console)

    def evaluate(self) -> None:
        """Score the selectors on held-out prompts: metrics.json and the report."""
        if (self.report_path / "metrics.json").exists():
            return
        run = RunFolder(self.train_path)
        checkpoints = [run.selector(verifier) for verifier in run.verifiers]
        data = RootDataset.load(self.data_path)
        run.check_data(data.manifest)
        prompts = run.splits.test
        evaluate(checkpoints, data, self.latency, self.config.evaluate, self.report_path, test_prompts=prompts)

    def export(self) -> None:
        """Write the selectors as checkpoint folders."""
        if not self.checkpoint_path.exists():
            with atomic_write(self.checkpoint_path) as temporary:
                export(self.train_path, temporary, self.report_path / "metrics.json")

    @property
    def latency(self) -> LatencyProfile:
        """The pass times that the first stage measured."""
        return LatencyProfile.load(self.profile_path)

    def sample(self) -> None:
        """Decode with the verifier that promises most; print where things are, and what to use on this machine."""
        rows = read_json(self.report_path / "metrics.json", "evaluate with `ddte run`")
        folders = [self.checkpoint_path / one.verifier for one in combinations(rows)]
        folder = next(folder for folder in folders if folder.is_dir())  # labelled verifiers may have no selector
        settings = self.config.decode
        checkpoint = SelectorCheckpoint.load(folder)
        decoder = Decoder.with_selector(self.pair, checkpoint, self.latency, settings.policy, settings.guard)
        length = min(settings.max_new_tokens, 128)
        generation = decoder.generate(SAMPLE_PROMPT, length, Sampling.of(settings), settings.seed)
        self.console.rule("A sample")
        self.console.print(f"{SAMPLE_PROMPT}\n", style="bold", markup=False)
        self.console.print(generation.text, markup=False)
        stats = generation.stats
        self.console.print(
            f"\n{stats.tokens_per_second:.1f} tokens per second, {stats.block_efficiency:.2f} a step, by {stats.policy}"
        )
        self.console.rule("Held-out prompts, under this machine's pass times")
        self.say(f"Decode:      {command('decode', self.given, checkpoint=folder, prompt=QUESTION)}")
        self.console.print(f"Checkpoints: {self.checkpoint_path}\nReport:      {self.report_path / 'report.html'}")
        if disturbance := self.latency.disturbance():
            self.say(f"Disturbed pass times: {disturbance}")
        self.say(f"On this machine: {answer(rows)}")


def run_chain(config: Config, out: Path, console: Console | None = None, given: Sequence[str] = ()) -> None:
    """Run all stages; the command that is printed at the end has the words `given`, which set the configuration.

    Raises UserError for bad input and for a folder that holds another run.
    """
    with sole_writer("out", out):
        claim(config, out)
        _run_stages(Chain(config, out, console or Console(), given))


def _run_stages(chain: Chain) -> None:
    stages: list[tuple[str, str, Callable[[], None]]] = [
        ("Pass times", "measure both models on this machine", chain.profile),
        ("Data", "both models over the prompts, the longest stage; what is left to make follows", chain.generate),
        ("Training", "one selector a verifier", chain.train),
        ("Evaluation", "held-out prompts, offline", chain.evaluate),
        ("Export", "checkpoint folders for decoding", chain.export),
    ]
    for number, (title, about, stage) in enumerate(stages, 1):
        with _timed(chain.console, f"{number}/{len(stages)} {title}", about):
            stage()
    chain.sample()


def claim(config: Config, out: Path) -> None:
    """A run folder belongs to one configuration."""
    if claim_folder("out", out, "config.json"):
        stored = read_json(out / "config.json", "give another folder")
        for section, settings in vars(config).items():
            refuse_other_run("out", out, stored.get(section, {}), settings, f"{section}.")
        return
    _check_stages(config)
    units = plan_units(config.generate, load_prompts(config.generate.prompts, config.generate.prompts_per_task))
    estimate(config, len(units), out)
    write_json(out / "config.json", as_json(config))


def _check_stages(config: Config) -> None:
    """Refuse now what a later stage would refuse after minutes of work, and no configuration can tell alone."""
    labelled = config.generate.verifiers
    for verifier in config.train.verifiers:
        if verifier not in labelled:
            raise UserError(f"train.verifiers has {verifier!r}: generate.verifiers labels only {', '.join(labelled)}.")
    check_train(config.train)
    fixed_policy(config.decode.policy)
    check_placement(config.pair)


@contextmanager
def _timed(console: Console, title: str, about: str) -> Iterator[None]:
    console.rule(title, align="left")
    console.print(about, style="dim", markup=False)
    start = time.perf_counter()
    yield
    console.print(f"took {time.perf_counter() - start:.0f} s", style="dim")
