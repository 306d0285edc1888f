"""Wheels from dist/, and environments with real pip that hold nothing but what a test puts there."""

from __future__ import annotations

import email
import email.message
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
WHEELS = REPOSITORY / "dist"
DISTRIBUTIONS = ("datasetrt", "datasetrt-torch", "datasetrt-jax", "datasetrt-tf")


@dataclass(frozen=True)
class Environment:
    """A virtual environment whose programs see neither this repository nor this process's packages."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def pip(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run pip; where ``check`` is set, a failure shows what it said."""
        return self._run("-m", "pip", *map(str, arguments), check=check)

    def run(self, code: str, *folders: Path) -> subprocess.CompletedProcess[str]:
        """Run a program that finds what lies in these folders first."""
        return self._run("-c", f"import sys; sys.path[:0] = {[*map(str, folders)]}\n{code}", check=False)

    def _run(self, *arguments: str, check: bool) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [self.python, "-I", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
        return done


def empty(folder: Path) -> Environment:
    """Make an environment that holds pip and nothing else."""
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", folder], check=True, timeout=600)
    made = Environment(folder)
    assert '"name": "pip"' in made.pip("list", "--format=json").stdout
    assert made.run("import datasetrt").returncode == 1
    return made


def wheel(distribution: str) -> Path:
    """The wheel of a distribution in dist/."""
    found = sorted(WHEELS.glob(f"{distribution.replace('-', '_')}-*.whl"))
    assert len(found) == 1, f"{len(found)} wheels of {distribution} in {WHEELS}; run `nox -s build`"
    return found[0]


def metadata(file: Path) -> email.message.Message:
    """METADATA of a wheel."""
    with zipfile.ZipFile(file) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def build_release(distribution: str, version: str, folder: Path) -> Path:
    """Build the wheel of an adapter as it would be in another release; returns the wheel."""
    source = folder / f"{distribution}-{version}"
    shutil.copytree(REPOSITORY / "packages" / distribution, source)
    series = ".".join(version.split(".")[:2])
    init = source / "src" / distribution.replace("-", "_") / "__init__.py"
    for file, old, new in (
        (init, '__version__ = "0.1.0"', f'__version__ = "{version}"'),
        (source / "pyproject.toml", "datasetrt==0.1.*", f"datasetrt=={series}.*"),
    ):
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1
        file.write_text(text.replace(old, new), encoding="utf-8")
    return build(source, "wheel", folder)


def build(source: Path, target: str, folder: Path) -> Path:
    """Build the wheel or the source distribution of an adapter's folder into ``folder``."""
    made = folder / f"{source.name}-{target}"
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(made)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    (file,) = made.iterdir()
    return file
