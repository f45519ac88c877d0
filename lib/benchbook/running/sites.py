"""A site's settings: one YAML file that says what jobs of a cluster ask for; `sites/example.yaml` explains each."""

from dataclasses import dataclass, fields
from pathlib import Path

from benchbook.frameworks import devices
from benchbook.running import profile_files

EXECUTORS = ("local", "slurm")
STATUS_COMMANDS = ("squeue", "sacct")


@dataclass(frozen=True)
class Site:
    """What jobs ask for; what is empty, or 0, is left to the cluster.

    Attributes:
        partition, account, qos, constraint: as sbatch names them.
        gpu_type: of the GPUs, as the cluster names it: a100.
        max_minutes: the longest job that the partition takes; what needs longer is continued by the same command.
        memory_gib: of a node; 0: all of it.
        devices: kinds that the nodes have, separated by blanks, the fastest first; the submitting host may have none.
        status_command: how Snakemake asks for jobs: squeue, or sacct where there is accounting.
        check_seconds: between two looks at the queue.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gpu_type: str = ""
    max_minutes: int = 0
    memory_gib: int = 0
    devices: str = "cpu"
    status_command: str = "squeue"
    check_seconds: int = 40

    def kinds(self, framework: str) -> tuple[str, ...]:
        """Return the kinds of device that nodes have for a framework."""
        return tuple(kind for kind in self.devices.split() if framework in devices.KINDS[kind].frameworks)


def chosen(executor: str, path: Path | None) -> Site | None:
    """Return the settings of the cluster that points run on; None where they run on this computer.

    Raises:
        ValueError: an unknown executor, or the settings of a site for this computer.
        ProfileError: as `read`.
    """
    if executor not in EXECUTORS:
        raise ValueError(f"executor {executor!r}; allowed: {', '.join(EXECUTORS)}")
    if executor == "slurm":
        return read(path)
    if path is not None:
        raise ValueError(f"site {path}: it is a cluster's, which executor slurm runs on, not {executor}")
    return None


def read(path: Path | None) -> Site:
    """Return the settings of a file; those of no file are a cluster's own.

    Raises:
        ProfileError: no such YAML, or a key or value that is not allowed; the message names it.
    """
    if path is None:
        return Site()
    if not path.is_file():
        raise profile_files.ProfileError(f"{path} does not exist; sites/example.yaml shows what such a file holds")
    content = profile_files.compose(path)
    kinds = {field.name: field.type for field in fields(Site)}
    if not isinstance(content, profile_files.Mapping):
        raise profile_files.ProfileError(f"{path.name}, line 1: allowed: a mapping of {', '.join(kinds)}")
    for key, value in content.items():
        place = f"{path.name}, line {content.lines[key]}"
        if key not in kinds:
            raise profile_files.ProfileError(f"{place}: unknown key {key[:80]!r}; allowed: {', '.join(kinds)}")
        right = type(value) is kinds[key] and (kinds[key] is str or value >= 0)
        if not right or (kinds[key] is str and not value.replace("|", "").isprintable()):
            wanted = "a text" if kinds[key] is str else "a whole number, 0 or more"
            raise profile_files.ProfileError(f"{place}: {key} is {str(value)[:80]!r}; allowed: {wanted}")
    _check_choice(path, content, "devices", tuple(devices.KINDS))
    _check_choice(path, content, "status_command", STATUS_COMMANDS)
    return Site(**content)


def _check_choice(path: Path, content: profile_files.Mapping, key: str, allowed: tuple[str, ...]) -> None:
    unknown = [word for word in content.get(key, allowed[0]).split() if word not in allowed]
    if unknown or not content.get(key, allowed[0]).strip():
        raise profile_files.ProfileError(
            f"{path.name}, line {content.lines[key]}: {key} is {content[key][:80]!r}; allowed: {', '.join(allowed)}"
        )
