"""What PyBullet's C code prints stays out of the output, and nothing else does."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from scripted import needs

from td3.environments import make_environment
from td3.environments.quiet import without_output

NOISE = b"pybullet build time: today\nargv[0]=\n"


def test_known_noise_is_left_out_and_all_else_is_passed_on(capfd):
    with without_output():
        os.write(1, NOISE + b"a word from C\nargv[0]=\nno end of line")
        os.write(2, b"pybullet build time: today\ncareful\n")
    os.write(1, b", and after\n")
    assert capfd.readouterr() == ("a word from C\nno end of line, and after\n", "careful\n")


def test_what_python_prints_meanwhile_is_kept_in_order():
    code = "from td3.environments.quiet import without_output\nimport os\nprint(1)\nwith without_output():\n print(2)\n"
    code += " os.write(1, b'argv[0]=\\n')\n print(3)\nprint(4)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1\n2\n3\n4\n"


def test_what_is_raised_inside_comes_through_and_the_output_is_whole_again(capfd):
    def talk_and_fail():
        with without_output(), without_output():
            os.write(1, NOISE + b"kept\n")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        talk_and_fail()
    os.write(1, b"again\n")
    assert capfd.readouterr().out == "kept\nagain\n"


def test_threads_do_not_lose_each_others_output(capfd):
    def talk(number):
        for turn in range(20):
            with without_output():
                os.write(1, NOISE + f"{number} {turn}\n".encode())

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = capfd.readouterr().out.splitlines()
    assert sorted(said) == sorted(f"{number} {turn}" for number in range(4) for turn in range(20))


def test_a_closed_output_is_no_trouble():
    code = "import os; os.close(1)\nfrom td3.environments.quiet import without_output\nwith without_output(): pass"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_pybullet_is_not_heard_when_made_reset_stepped_or_drawn(capfd):
    needs("pybullet_envs_gymnasium")
    environment = make_environment("HopperBulletEnv-v0", render_mode="rgb_array")
    for seed in (1, 2):
        environment.reset(seed=seed)
        for _ in range(60):
            *_, terminated, truncated, _ = environment.step(np.full(3, 0.5, np.float32))
            if terminated or truncated:
                environment.reset()
    assert environment.render().shape == (240, 320, 3)
    environment.close()
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import sys
from functools import partial
from td3.environments import ProcessVectorEnv, make_environment

if __name__ == "__main__":
    pool = ProcessVectorEnv(partial(make_environment, "HopperBulletEnv-v0"), 1, 1)
    pool.reset(seed=1)
    pool.close()
    from td3.cli import main
    small = "--steps 30 --td3.learning-starts 20 --td3.hidden-sizes 8 8 --td3.batch-size 8 --eval-episodes 1"
    sys.exit(main(["train", "HopperBulletEnv-v0", "--preset", "bullet", "--device", "cpu", "--json", *small.split()]))
"""


def test_a_run_prints_clean_json_from_a_fresh_process_and_its_workers(tmp_path):
    needs("pybullet_envs_gymnasium")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps"] == 30
    assert "argv" not in done.stderr
    assert "build time" not in done.stderr
