"""Every check and every run of this repository is a session here; `nox` alone runs what CI runs.

The wheels of the four distributions are built once by the session `build`, and every session that imports
`datasetrt` installs those: what is tested is what would be released. Cargo keeps one target folder for all
sessions.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"  # sessions that require others
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
nox.options.sessions = [
    "lint",
    "types",
    "rust",
    "tests",
    "packages",
    "docs",
    "examples",
    "torch",
    "jax",
    "tf",
    "keras_jax",
]

# No session builds an engine that does not verify, whatever the caller's environment holds: only
# benchmarks/verification/run.py sets this, for one call of cargo, and what it builds is never installed.
os.environ.pop("DATASETRT_BENCH_WITHOUT_VERIFICATION", None)

ROOT = Path(__file__).parent
WHEELS = ROOT / "dist"
ADAPTERS = ("torch", "jax", "tf")
# Sessions of their own run the others: with mypy, with pip, or with one framework each.
CORE_TESTS = [
    "-m",
    "not docs",
    "--ignore=tests/typing",
    "--ignore=tests/packaging",
    *(f"--ignore=tests/adapters/{name}" for name in ADAPTERS),
]
# What `sanitize` runs: what goes through memory shared with Python, callbacks, threads, forks and damage.
# Left out is what only compares values (codecs of Python objects, samplers, checks of arguments), starts
# hundreds of processes (commands, killed writers: slow here), mounts file systems that a report could not
# be written from, or counts Python's blocks of memory, of which there are none without its allocator. Worker
# processes of sources have to start within seconds, which they do not here.
SANITIZED_TESTS = [
    "tests/unit/test_payload_memory.py",  # views that outlive, come back, are in threads and forks
    "tests/unit/test_loader.py",  # callbacks that raise, come back in, close; pools; threads; forks
    "tests/unit/test_loader_last.py",
    "tests/unit/test_dataset.py",  # tables and arrays of others
    "tests/unit/test_writer.py",
    "tests/unit/test_interrupts.py",
    "tests/unit/test_codecs_npy.py",  # arrays that are views of payloads
    "tests/unit/test_codecs_oob.py",
    "tests/unit/test_codecs_record.py",
    "tests/property/test_split_batches.py",
    "tests/format/test_golden_caches.py",
    "tests/faults/test_damage_sweep.py",
    "tests/faults/test_exit.py",
    "tests/faults/test_process_safety.py",
    "tests/faults/test_refusals.py",  # buffers of others, written
    # It sends a signal every half millisecond, faster than its own clean-up runs here.
    "--deselect=tests/unit/test_interrupts.py::test_interrupts_at_any_place_leave_the_iterator_usable_and_the_state_right",
    # A fork while other threads allocate leaves a lock of the runtime held in the child: it waits for ever.
    "--deselect=tests/faults/test_process_safety.py::test_a_fork_in_the_middle_of_reads_by_other_threads",
    "--deselect=tests/unit/test_loader.py::test_an_iterator_goes_on_in_a_forked_child",
]
# Ends with the status of a report: Python asks for a copy of memory that it gave back.
FREED_MEMORY = """
import ctypes, sys
import datasetrt._core
assert datasetrt._core.__file__.startswith(sys.argv[1]), datasetrt._core.__file__
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
memory = c.malloc(ctypes.c_size_t(100))
c.free(ctypes.c_void_p(memory))
ctypes.string_at(memory, 100)
"""
PYPROJECT = nox.project.load_toml("pyproject.toml")


@nox.session
def lint(session: nox.Session) -> None:
    """Layout and lint of Python and Rust; nothing is rewritten."""
    session.install(*_group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    _cargo(session, "fmt", "--all", "--check")
    _cargo(session, "clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings")
    # A workspace of its own, which nothing else here compiles: it must not fall behind the engine.
    fuzz = ("--manifest-path=fuzz/Cargo.toml", "--locked")
    _cargo(session, "clippy", *fuzz, "--all-targets", "--", "-D", "warnings")


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheels that the other sessions install, into dist/."""
    session.install(*_group("build"))
    shutil.rmtree(WHEELS, ignore_errors=True)
    with session.chdir(ROOT / "packages" / "datasetrt"):
        session.run("maturin", "build", "--release", "--out", str(WHEELS))
    for name in ADAPTERS:
        with session.chdir(ROOT / "packages" / f"datasetrt-{name}"):
            session.run("hatchling", "build", "--target", "wheel", "--directory", str(WHEELS))


@nox.session(requires=["build"])
def types(session: nox.Session) -> None:
    """Strict types of our code, the stub against the native module, and what users' code may say."""
    _install_product(session, "types")
    session.run("mypy")
    session.run("python", "-m", "mypy.stubtest", "datasetrt._core")
    _pytest(session, "tests/typing")


@nox.session
def rust(session: nox.Session) -> None:
    """Tests of the engine, and the examples in its documentation."""
    # The binding crate has no tests of its own: it decides nothing, and the Python tests run through it.
    engine = ("--package", "datasetrt-core", "--all-features")
    if shutil.which("cargo-nextest"):
        _cargo(session, "nextest", "run", *engine)
    else:
        _cargo(session, "test", *engine, "--all-targets")
    _cargo(session, "test", *engine, "--doc")


@nox.session(requires=["build"])
def tests(session: nox.Session) -> None:
    """Tests of the Python packages; arguments go to pytest."""
    _install_product(session, "test")
    _pytest(session, *(session.posargs or CORE_TESTS))


@nox.session(requires=["build"])
def oldest(session: nox.Session) -> None:
    """The same tests with the oldest versions that the packages accept; not part of the default run."""
    # Named here too: what only a wheel asks for is not direct, and would be the newest.
    core = nox.project.load_toml(ROOT / "packages" / "datasetrt" / "pyproject.toml")
    floors = core["project"]["dependencies"]
    _install_product(session, "test", "--resolution", "lowest-direct", *floors)
    _pytest(session, *(session.posargs or CORE_TESTS))


@nox.session(requires=["build"])
def packages(session: nox.Session) -> None:
    """What the wheels hold, and what pip makes of them in an empty environment; arguments go to pytest."""
    session.install(*_group("packages"))
    _pytest(session, *(session.posargs or ["tests/packaging"]))


@nox.session(requires=["build"])
def kill(session: nox.Session) -> None:
    """Kill writers at random moments for some minutes (10), not part of the default run; prints figures."""
    _install_product(session, "test")
    _endurance(session, "kill")


@nox.session(requires=["build"])
def soak(session: nox.Session) -> None:
    """Do everything again and again for some minutes (60), not part of the default run; nothing may grow."""
    _install_product(session, "test")
    _endurance(session, "soak")


@nox.session(requires=["build"])
def docs(session: nox.Session) -> None:
    """Run every documented example: docstrings, README and docs; check links and the engine's own docs."""
    _install_product(session, "test")
    _pytest(session, "tests/repository", "-m", "docs")
    _cargo(session, "doc", "--package", "datasetrt-core", "--no-deps", env={"RUSTDOCFLAGS": "-D warnings"})


@nox.session(requires=["build"])
def examples(session: nox.Session) -> None:
    """Run every example on an empty folder, and the quickstart once more on what it left."""
    _install_product(session, "examples")
    root = Path(session.create_tmp()) / "examples"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("quickstart", "dill_records", "photographs"):
        session.run("python", f"examples/{name}.py", str(root))
    again = session.run("python", "examples/quickstart.py", str(root), silent=True)
    print(again)
    if "reused the cache" not in str(again):
        session.error("the second run of examples/quickstart.py did not reuse its cache")


@nox.session(requires=["build"])
def torch(session: nox.Session) -> None:
    """Tests and examples of datasetrt-torch, in an environment with PyTorch alone; arguments go to pytest."""
    _framework(session, "torch", "torch_digits", "torch_ddp")
    session.run("mypy", "packages/datasetrt-torch/src", "examples/torch_digits.py", "examples/torch_ddp.py")


@nox.session(requires=["build"])
def jax(session: nox.Session) -> None:
    """Tests and example of datasetrt-jax, in an environment with JAX alone; arguments go to pytest."""
    _framework(session, "jax", "jax_digits")


@nox.session(requires=["build"])
def tf(session: nox.Session) -> None:
    """Tests and example of datasetrt-tf, in an environment with TensorFlow alone; arguments go to pytest."""
    _framework(session, "tf", "tf_digits")


@nox.session(requires=["build"])
def keras_jax(session: nox.Session) -> None:
    """Keras on JAX, without TensorFlow: what datasetrt-tf offers there."""
    _install_framework(session, "tf", "test-keras-jax")
    files = ("tests/adapters/tf/test_fit.py", "tests/adapters/tf/test_frameworks.py")
    session.run("python", "-m", "pytest", *files, env={"KERAS_BACKEND": "jax"})


@nox.session
def audit_dependencies(session: nox.Session) -> None:
    """Ask for known vulnerabilities and withdrawn releases of what we need; needs a network, not a default.

    pip-audit looks at Python packages, cargo-deny at crates. One that cannot be had, or whose database
    cannot, is a failure of the session after the other has run: nothing passes for checked that was not.
    """
    failures = []
    requirements = Path(session.create_tmp()) / "requirements.txt"
    core = nox.project.load_toml("packages/datasetrt/pyproject.toml")["project"]["dependencies"]
    requirements.write_text("\n".join(core) + "\n", encoding="utf-8")
    try:
        session.install("pip-audit>=2.7")
        # Strict: what it does not find in the index is skipped otherwise, and the answer is still a good one.
        session.run("pip-audit", "--strict", "--requirement", str(requirements))
    except nox.command.CommandFailed as error:
        failures.append(f"pip-audit: {error}")
    folder = Path(session.create_tmp()) / "cargo"
    try:
        if not _has_cargo("deny"):
            installed = ("--root", str(folder), "cargo-deny")
            _cargo(session, "install", "--locked", *installed)
        deny = shutil.which("cargo-deny", path=f"{folder / 'bin'}:{session.env.get('PATH', '')}")
        # Sources first: that needs no database.
        for what in ("sources", "advisories"):
            session.run(deny or "cargo-deny", "check", what, external=True)
    except nox.command.CommandFailed as error:
        failures.append(f"cargo-deny: {error}")
    if failures:
        session.error("; ".join(failures))


@nox.session(requires=["build"])
def quickstart(session: nox.Session) -> None:
    """The main job, once: cache the digits, train, stop, resume. A second run reuses ./cache."""
    _install_product(session, "examples")
    session.run("python", "examples/quickstart.py", *session.posargs)


@nox.session(requires=["build"])
@nox.parametrize("framework", [nox.param(name, id=name) for name in ADAPTERS])
def bench_frameworks(session: nox.Session, framework: str) -> None:
    """Measure one adapter beside what its users would pick instead; prints ratios."""
    _install_framework(session, framework, f"bench-{framework}")
    data = Path(session.create_tmp()) / "benchmarks"
    arguments = (framework, "--data", str(data), *session.posargs)
    session.run("python", "benchmarks/frameworks/run.py", *arguments)


@nox.session(requires=["build"])
def damage(session: nox.Session) -> None:
    """Flip every bit and cut at every byte of small caches; the default run takes a sample of it."""
    full = {"DATASETRT_DAMAGE": "full"}
    engine = ("test", "--release", "--package", "datasetrt-core", "--all-features", "--test", "damage")
    _cargo(session, *engine, "--", "--nocapture", env=full)
    _install_product(session, "test")
    session.run("python", "-m", "pytest", "-s", "tests/faults/test_damage_sweep.py", env=full)


@nox.session(requires=["build"])
def fuzz(session: nox.Session) -> None:
    """Fuzz every reader for so many seconds each (default 60), then walk through the Python API.

    Needs cargo-fuzz: `cargo install cargo-fuzz`. What is found lies in fuzz/artifacts/, what was learnt in
    fuzz/grown/; both are ignored by git.
    """
    seconds = int(session.posargs[0]) if session.posargs else 60
    if shutil.which("cargo-fuzz") is None:
        session.error("cargo-fuzz is missing: run `cargo install cargo-fuzz`, then run again")
    targets = sorted(path.stem for path in (ROOT / "fuzz" / "fuzz_targets").glob("*.rs"))
    for target in targets:
        grown = ROOT / "fuzz" / "grown" / target
        grown.mkdir(parents=True, exist_ok=True)
        # The coverage that the fuzzer needs is a flag of the compiler that a stable one hides.
        limits = (f"-max_total_time={seconds}", "-rss_limit_mb=2048", "-malloc_limit_mb=256", "-timeout=20")
        corpora = (str(grown), f"fuzz/corpus/{target}")
        arguments = ("run", target, *corpora, "--", *limits, "-print_final_stats=1")
        _cargo(session, "fuzz", *arguments, env={"RUSTC_BOOTSTRAP": "1"})
    _install_product(session, "test")
    # A few walks a second; the limit for a test that hangs is not meant for one that long.
    walks = {"DATASETRT_WALKS": str(seconds)}
    machine = ("-o", "faulthandler_timeout=0", "tests/property/test_api_machine.py")
    session.run("python", "-m", "pytest", *machine, env=walks)


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the unsafe code under AddressSanitizer, not part of the default run; arguments go to pytest.

    Needs Linux and gcc, whose runtime is loaded ahead of Python: that of rustc is only for programs. Polars,
    NumPy and Arrow are as they are installed: they are watched only where they call malloc, free and memcpy.
    Leaks are not looked for in Python, which frees little when it ends. `SANITIZED_TESTS` are the tests, with
    the reason for the choice. Miri is no part of it: it calls neither Python nor zstd, and is nightly alone.
    """
    tmp = Path(session.create_tmp()).absolute()
    folder, reports = tmp / "package", tmp / "reports"
    for each in (folder, reports):
        shutil.rmtree(each, ignore_errors=True)
    reports.mkdir()
    core = nox.project.load_toml("packages/datasetrt/pyproject.toml")["project"]["dependencies"]
    session.install(*core, *_group("test"))

    facts = str(session.run("rustc", "-vV", silent=True, external=True))
    target = next(line.split()[1] for line in facts.splitlines() if line.startswith("host:"))
    # The flag is one of those that a stable compiler hides. With a target named, it is for no build script.
    compiling = {
        "RUSTC_BOOTSTRAP": "1",
        "RUSTFLAGS": "-Zsanitizer=address",
        "CARGO_TARGET_DIR": str(tmp / "cargo"),
        # The stable ABI is the same for all, and a module finds it in the process that loads it.
        "PYO3_NO_PYTHON": "1",
        "PYO3_BUILD_EXTENSION_MODULE": "1",
    }
    tests = ("format::xxh3", "format::checksum", "read::buffer", "read::split", "read::batch")
    engine = ("--package", "datasetrt-core", "--all-features", "--lib", "--target", target)
    _cargo(session, "test", *engine, "--", *tests, env=compiling)

    _cargo(session, "build", "--package", "datasetrt-python", "--target", target, env=compiling)
    skipped = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "packages/datasetrt/src/datasetrt", folder / "datasetrt", ignore=skipped)
    library = tmp / "cargo" / target / "debug" / "lib_core.so"
    shutil.copy(library, folder / "datasetrt" / "_core.abi3.so")

    # Where a C++ library throws, the runtime calls what it found when it was loaded: it has to find it then.
    names = ("libasan.so", "libstdc++.so")
    found = [session.run("gcc", f"-print-file-name={name}", silent=True, external=True) for name in names]
    preloaded = [Path(str(line).strip()).resolve() for line in found]
    if not all(path.is_file() for path in preloaded):
        session.error("gcc has no libasan: install it (it comes with gcc or as libasan), then run again")
    options = {
        "log_path": reports / "report",  # a process that a test starts may die without the test noticing
        "exitcode": 86,
        "detect_leaks": 0,
        "detect_stack_use_after_return": 1,
        "allocator_may_return_null": 1,  # as malloc does: what is too large is an error to be handled
    }
    running = {
        "LD_PRELOAD": ":".join(map(str, preloaded)),
        "PYTHONMALLOC": "malloc",  # Python's own allocator would hide where an object ends
        "PYTHONPATH": str(folder),
        "ASAN_OPTIONS": ":".join(f"{key}={value}" for key, value in options.items()),
    }
    # Nothing passes for checked that was not: the module is the one built here, and the runtime sees a fault.
    session.run("python", "-c", FREED_MEMORY, str(folder), env=running, success_codes=[86])
    (seen,) = reports.iterdir()
    if "heap-use-after-free" not in seen.read_text(encoding="utf-8"):
        session.error(f"AddressSanitizer did not tell what is wrong: {seen}")
    seen.unlink()
    try:
        session.run("python", "-m", "pytest", *(session.posargs or SANITIZED_TESTS), env=running)
    finally:
        for report in sorted(reports.iterdir()):
            session.warn(report.read_text(encoding="utf-8", errors="replace"))
    # That an allocation was refused is written there too, as a warning.
    if any("ERROR: " in report.read_text(encoding="utf-8", errors="replace") for report in reports.iterdir()):
        session.error(f"the tests passed, but a process of theirs is reported in {reports}")


@nox.session(requires=["build"])
def bench_core(session: nox.Session) -> None:
    """Measure the table of docs/benchmarks.md beside dataset-rt, LMDB, polars and a C floor; prints it."""
    session.install("--reinstall-package=datasetrt", _wheel(session, "datasetrt"), *_group("bench-core"))
    data = Path(session.create_tmp()) / "benchmarks"
    session.run("python", "-m", "benchmarks.core", "--data", str(data), *session.posargs)


@nox.session(requires=["build"])
def bench_expectations(session: nox.Session) -> None:
    """Measure a short form of every ratio and print it beside the stored one; no pass or fail.

    `nox -s bench_expectations -- --store` makes the short run just measured the new expectation.
    """
    session.install("--reinstall-package=datasetrt", _wheel(session, "datasetrt"), *_group("bench-core"))
    data = Path(session.create_tmp()) / "benchmarks"
    results = data / "expectations.jsonl"
    store = [argument for argument in session.posargs if argument == "--store"]
    rest = [argument for argument in session.posargs if argument != "--store"]
    run = ("-m", "benchmarks.core", "--data", str(data), "--out", str(results), "--quick", "--rounds", "3")
    session.run("python", *run, *rest)
    session.run("python", "-m", "benchmarks.core.expectations", str(results), *store)


@nox.session(requires=["build"])
def bench_growth(session: nox.Session) -> None:
    """Measure how every operation grows; prints exponents, draws docs/benchmarks/growth-*.svg."""
    session.install("--reinstall-package=datasetrt", _wheel(session, "datasetrt"), *_group("bench-growth"))
    data = Path(session.create_tmp()) / "benchmarks"
    drawn = ("--data", str(data), "--plots", "docs/benchmarks")
    session.run("python", "-m", "benchmarks.growth", *drawn, *session.posargs)


@nox.session
def instructions(session: nox.Session) -> None:
    """Count the instructions of the hot paths with callgrind; one out of its bounds is a failure.

    `nox -s instructions -- --store` keeps the counts as the new bounds. They belong to x86-64 with AVX2; on
    other machines, and without valgrind, nothing is counted, and that is said.
    """
    for missing in _missing_for_instructions():
        session.skip(f"NOT RUN: {missing}; the instructions of the hot paths were not compared")
    data = Path(session.create_tmp()) / "benchmarks"
    session.run("python", "-m", "benchmarks.instructions", "--data", str(data), *session.posargs)


@nox.session
def bench_verification(session: nox.Session) -> None:
    """Measure what verification costs, beside a build that does none; prints ratios."""
    core = nox.project.load_toml("packages/datasetrt/pyproject.toml")["project"]["dependencies"]
    session.install(*core)
    data = Path(session.create_tmp()) / "benchmarks"
    session.run("python", "benchmarks/verification/run.py", "--data", str(data), *session.posargs)


def _missing_for_instructions() -> list[str]:
    """Why the stored counts mean nothing here."""
    cpuinfo = Path("/proc/cpuinfo")
    missing = []
    if shutil.which("valgrind") is None:
        missing.append("valgrind is not installed")
    if platform.machine() != "x86_64" or not cpuinfo.exists() or " avx2 " not in cpuinfo.read_text():
        missing.append("this is no Linux machine with an x86-64 processor that has AVX2")
    return missing


def _group(name: str) -> list[str]:
    return list(nox.project.dependency_groups(PYPROJECT, name))


def _install_product(session: nox.Session, group: str, *options: str) -> None:
    """Install the wheel from dist/ and a dependency group; the adapters too, without their frameworks."""
    session.install(*options, "--reinstall-package=datasetrt", _wheel(session, "datasetrt"), *_group(group))
    adapters = [_wheel(session, f"datasetrt_{name}") for name in ADAPTERS]
    session.install("--no-deps", "--reinstall", *adapters)


def _framework(session: nox.Session, name: str, *examples: str) -> None:
    """Install one adapter with its framework, run its tests and its examples."""
    _install_framework(session, name, f"test-{name}")
    _pytest(session, *(session.posargs or [f"tests/adapters/{name}"]))
    root = Path(session.create_tmp()) / "examples"
    shutil.rmtree(root, ignore_errors=True)
    for example in examples:
        session.run("python", f"examples/{example}.py", str(root))


def _install_framework(session: nox.Session, name: str, group: str) -> None:
    """Install as a user would, by the extra; dist/ stands in for the index where our wheels will be."""
    core, adapter = _wheel(session, "datasetrt"), _wheel(session, f"datasetrt_{name}")
    # Ours and no others, whatever an index has under these names.
    constraints = Path(session.create_tmp()) / "ours.txt"
    lines = [f"datasetrt @ {Path(core).as_uri()}", f"datasetrt-{name} @ {Path(adapter).as_uri()}"]
    constraints.write_text("\n".join(lines) + "\n", encoding="utf-8")
    # Same version, new content: without this, what an earlier run installed would be tested.
    renewed = ("--reinstall-package=datasetrt", f"--reinstall-package=datasetrt-{name}")
    session.install(*renewed, "--constraint", str(constraints), f"datasetrt[{name}]", *_group(group))
    session.run("uv", "pip", "check")


def _wheel(session: nox.Session, name: str) -> str:
    wheels = sorted(WHEELS.glob(f"{name}-*.whl"))
    if len(wheels) != 1:
        session.error(f"one wheel of {name} expected in {WHEELS}, {len(wheels)} found; run `nox -s build`")
    return str(wheels[0])


def _pytest(session: nox.Session, *arguments: str) -> None:
    session.run("python", "-m", "pytest", *arguments)


def _endurance(session: nox.Session, name: str) -> None:
    forks = "ignore:.*multi-threaded, use of fork:DeprecationWarning"
    session.run("python", "-W", "error", "-W", forks, "-m", f"tests.endurance.{name}", *session.posargs)


def _cargo(session: nox.Session, command: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    component = {"fmt": "rustfmt", "clippy": "clippy"}.get(command)
    if shutil.which("cargo") is None:
        session.error("cargo is missing: install Rust, then run again")
    if component and not _has_cargo(command):
        session.error(f"`cargo {command}` is missing: run `rustup component add {component}`, then run again")
    session.run("cargo", command, *arguments, env=env, external=True)


def _has_cargo(command: str) -> bool:
    """Whether an optional command works; `cargo --list` also names those that rustup only has a link for."""
    return subprocess.run(["cargo", command, "--version"], capture_output=True, check=False).returncode == 0
