"""The parameters that a study declares, and a point's name for files and its title for people."""

import ast
import functools
import hashlib
import json
import re
from pathlib import Path

import yaml

from benchbook.machine import layout, libraries
from benchbook.machine.kinds import KINDS

DEFAULTS = Path(__file__).with_name("defaults.json")
LISTED = json.loads(DEFAULTS.read_text(encoding="utf-8"))  # by study: what the names of points refer to
BUDGET = "budget"  # the parameter that says how much to measure; its keys are in notebooks/budgets.yaml
# Parameters that change no result: the data folder, when the processes are enough, and what else a notebook shows.
UNMEASURED = frozenset({"data_root", "try_seconds", "explore"})
UNMEASURED |= {"num_processes", "fewest_processes", "processes_part"}
UNMEASURED |= {"purchase_price", "sync_batch_norm"}  # which older rows have, 0 and False
# Parameters that may name a file, as `path/to/file.py:callable`; only the file's name counts, not its folder.
FILES = ("network", "loader", "loss")
# Callables that take a network's name, and the argument with the name.
REGISTRIES = {
    "timm:create_model": "model_name",
    "torchvision.models:get_model": "name",
}
HASH = re.compile(r"-([0-9a-f]{8})$")
MAX_LENGTH = 100  # characters of a name without its hash
TRIALS_PREFIX = "matrix_"  # of the part of a name that describes trials outside the training

# The words for a part of a point's name: by prefix, and for whole parts.
SETTINGS = {"batch_size_": "batch {}", "image_size_": "{} px", "dataset_": "{}", "framework_": "{}"}
SETTINGS |= {"sequence_length_": "{} tokens", "lora_rank_": "LoRA of rank {}", "model_": "{}", "ladder_": "{}"}
SETTINGS |= {"network_": "{}", "weights_": "{} weights", "num_workers_": "{} workers", "device_count_": "{} devices"}
NAMES = {name: kind.word for name, kind in KINDS.items()} | {"data_resident": "data on the device"}
NAMES |= libraries.WORDS | {"not_trainable": "head alone"}


class NotebookError(ValueError):
    """A notebook declares a parameter in another form; the message names both and what is allowed."""


def declared(study: str) -> dict:
    """Return a study's parameters with their defaults: the notebook's, with the budget's keys instead of `budget`."""
    return {name: value for name, value in in_notebook(study).items() if name != BUDGET} | budget(study)


def in_notebook(study: str) -> dict:
    """Return the parameters in the first cell of a study's notebook, with their defaults.

    Raises:
        NotebookError: a parameter has no type, or a default that is no literal.
    """
    notebook = layout.notebook(study)
    return dict(_defaults(notebook, notebook.stat().st_mtime_ns))


def budget(study: str) -> dict:
    """Return the keys of a study's budget with their defaults; empty if its notebook has no budget."""
    budgets = layout.root() / "notebooks" / "budgets.yaml"
    return dict(_defaults(budgets, budgets.stat().st_mtime_ns)[study]) if BUDGET in in_notebook(study) else {}


@functools.lru_cache(maxsize=16)
def _defaults(path: Path, modified: int) -> dict:
    """Return the defaults in a notebook or in the file of budgets, cached until the file is modified.

    A profile needs them for each point, and a report for each run.
    """
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    tagged = [cell["source"] for cell in layout.cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    allowed = "allowed: a name, a type and a literal, such as num_workers: int = 1"
    found = {}
    try:
        for node in ast.parse(tagged[0] if tagged else "").body:
            try:
                found[node.target.id] = ast.literal_eval(node.value)
            except (AttributeError, ValueError) as error:
                raise NotebookError(f"{path.name}: parameter {ast.unparse(node)!r}; {allowed}") from error
    except SyntaxError as error:
        raise NotebookError(f"{path.name}: parameters, line {error.lineno}: {error.msg}; {allowed}") from error
    return found


def defaults(study: str) -> tuple[dict, dict]:
    """Return the defaults that names of points refer to: of the parameters outside the budget, and of its keys.

    They are not read from the notebook, whose defaults a user may edit and save. A study that DEFAULTS lacks has those
    of its notebook.
    """
    known = LISTED.get(study) or in_notebook(study) | {BUDGET: budget(study)}
    return {name: value for name, value in known.items() if name != BUDGET}, known.get(BUDGET, {})


def nested(study: str, parameters: dict) -> dict:
    """Return parameters as a notebook takes them, with the budget's keys inside `budget`."""
    keys = budget(study)
    inner = {name: value for name, value in parameters.items() if name in keys}
    outer = {name: value for name, value in parameters.items() if name not in keys}
    return outer | ({BUDGET: inner} if keys else {})


def public(parameters: dict) -> dict:
    """Return parameters for publication: no data folder, files by name only, `arguments` with texts as a digest."""
    kept = {name: value for name, value in parameters.items() if name not in UNMEASURED}
    files = {name: kept[name] for name in kept.keys() & FILES if ".py:" in str(kept[name])}
    kept |= {name: re.split(r"[/\\]", value)[-1] for name, value in files.items()}
    if isinstance(kept.get("arguments"), str):
        kept["arguments"] = _without_texts(kept["arguments"], REGISTRIES.get(str(kept.get("network")), ""))
    return kept


def _without_texts(arguments: str, known: str) -> str:
    """Return a digest of keyword arguments that hold texts, which may be paths or keys; that of `known` may stay."""
    others = re.sub(rf"\b{known}=(['\"])[\w.-]+\1", "", arguments) if known else arguments
    has_texts = "'" in others or '"' in others
    return f"sha256_{hashlib.sha256(arguments.encode()).hexdigest()[:8]}" if has_texts else arguments


def non_default(study: str, parameters: dict) -> dict:
    """Return the parameters that differ from the study's `defaults`, sorted; the folders of files do not count.

    A parameter that is missing counts as its default, so that a new parameter leaves the names of older points.

    Args:
        study: the study.
        parameters: by name, with the device and framework that were picked.
    """
    outer, inner = defaults(study)
    known = outer | inner
    typed = {
        name: float(value) if type(known.get(name)) is float else value
        for name, value in sorted(public(parameters).items())
    }
    return {name: value for name, value in typed.items() if name not in known or value != known[name]}


def point_name(study: str, parameters: dict) -> str:
    """Return a point's folder name: variant, device, changed parameters without the budget's, and a hash.

    The hash covers all changed parameters except the device, so that the same work has the same hash on every device.

    Args:
        study: the study.
        parameters: by name, with the device that was picked (not `best`).
    """
    changed = non_default(study, parameters)
    work = {name: value for name, value in changed.items() if name != "device"}
    digest = hashlib.sha256(json.dumps([study, work], sort_keys=True).encode()).hexdigest()[:8]
    leading = [parameters["variant"], parameters["device"]] if "variant" in parameters else [parameters["device"]]
    left_out = {"variant", "device"} | defaults(study)[1].keys()
    texts = [
        name if value is True else f"not_{name}" if value is False else f"{name}_{value}"
        for name, value in changed.items()
        if name not in left_out
    ]
    words = [re.sub(r"[^A-Za-z0-9._]+", "_", text) for text in texts]
    return f"{'-'.join([*leading, *words])[:MAX_LENGTH]}-{digest}"


def setting(name: str) -> str:
    """Return a point's title for people, such as `reference, CPU, TensorFlow, 64 px, batch 32`, from its name."""
    words, readable = [], HASH.sub("", name)
    parts = readable.split("-")
    if len(readable) >= MAX_LENGTH:  # the last part was cut
        parts[-1] = "..."
    for part in parts:
        start = next(filter(part.startswith, SETTINGS), "")
        text = SETTINGS.get(start, "{}").format(part.removeprefix(start))
        words.append(NAMES.get(text, text.replace("_", " ")))
    return ", ".join(words)


def point_work(name: str, device: str) -> str:
    """Return the part of a point's name that is the same on every device and for every budget.

    That is the name without device, trials and hash, or only the hash if the name was cut.
    """
    readable, match = HASH.sub("", name), HASH.search(name)
    if match and len(readable) >= MAX_LENGTH:
        return match[1]
    return "-".join(part for part in readable.split("-") if part != device and not part.startswith(TRIALS_PREFIX))
