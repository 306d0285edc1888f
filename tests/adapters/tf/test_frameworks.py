"""What is missing, broken or of another release is one clear error; importing brings no framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROBE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import datasetrt as drt
{before}
try:
    import datasetrt_tf as drtf
    {call}
except ImportError as error:
    print(type(error).__name__, error)
else:
    print("no error", sorted({{"tensorflow", "keras", "jax", "torch"}} & set(sys.modules)))
"""


def _said(call: str, *blocked: str, before: str = "", folder: Path | None = None) -> str:
    code = PROBE.format(call=call, blocked=set(blocked), before=before)
    path = [] if folder is None else [f"import sys; sys.path.insert(0, {str(folder)!r})"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*path, code])],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def test_importing_brings_no_framework() -> None:
    assert _said("pass") == "no error []"
    assert _said("pass", "tensorflow", "keras") == "no error []"


def test_a_cursor_needs_no_framework() -> None:
    call = "drtf.cursor(drt.testing.tiny_dataset(), 4, global_step=1)"
    assert _said(call, "tensorflow", "keras") == "no error []"


def test_tensorflow_is_missing() -> None:
    for name in ("dataset", "raw"):
        said = _said(f"drtf.{name}(drt.testing.tiny_dataset(), 4)", "tensorflow")
        assert said.startswith(
            f"InstallationError datasetrt_tf.{name} needs tensorflow 2.16 or later, and {sys.executable} has "
            "none; pip install 'tensorflow"
        )
    said = _said("drtf.distributed(None, drt.testing.tiny_dataset(), 4)", "tensorflow")
    assert "datasetrt_tf.distributed needs tensorflow" in said


def test_keras_is_missing_or_old(tmp_path: Path) -> None:
    call = "drtf.fit_args(drt.testing.tiny_dataset(), 4, epochs=1, inputs='label', targets=None)"
    said = _said(call, "keras")
    assert said.startswith("InstallationError datasetrt_tf.fit_args needs keras 3.3 or later, and")
    assert said.endswith("has none; pip install 'keras>=3.3'")
    (tmp_path / "keras.py").write_text("__version__ = '2.15.0'\n")
    said = _said(call, folder=tmp_path)
    assert said.endswith("has 2.15.0; pip install --upgrade 'keras>=3.3'")


def test_tensorflow_is_broken_or_old(tmp_path: Path) -> None:
    call = "drtf.dataset(drt.testing.tiny_dataset(), 4)"
    (tmp_path / "tensorflow").mkdir()
    init = tmp_path / "tensorflow" / "__init__.py"
    for broken, reason in (
        ("raise ImportError('libfoo.so.2: cannot open\\nshared object')", "libfoo.so.2: cannot open shared"),
        ("import numpie", "No module named 'numpie'"),
        ("raise OSError('wrong ELF class')", "OSError: wrong ELF class"),
        ("raise TypeError('Descriptors cannot be created')", "TypeError: Descriptors cannot"),
    ):
        init.write_text(broken)
        said = _said(call, folder=tmp_path)
        assert said.startswith(
            "InstallationError datasetrt_tf.dataset needs tensorflow 2.16 or later; tensorflow"
        )
        assert "its import fails (" in said
        assert reason in said
        assert "; pip install --force-reinstall 'tensorflow" in said
        assert "\n" not in said
    init.write_text("__version__ = '2.15.1'")
    assert "has 2.15.1; pip install --upgrade 'tensorflow" in _said(call, folder=tmp_path)


def test_a_core_of_another_release_is_refused() -> None:
    said = _said("pass", before="drt.__version__ = '0.9.3'")
    assert said == (
        "InstallationError datasetrt-tf 0.1.0 does not go with datasetrt 0.9.3: both have to be of one minor "
        "release; pip install --upgrade datasetrt datasetrt-tf"
    )
    assert _said("pass", before="drt.__version__ = '0.1.7'") == "no error []"


def test_the_core_hands_the_adapter_over() -> None:
    assert _said("assert drt.tf is drtf", "tensorflow", "keras") == "no error []"
