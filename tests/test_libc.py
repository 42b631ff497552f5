"""Programs that the library gets into and must leave alone: musl, and children of a shell."""

import shutil
import subprocess
from pathlib import Path

import pytest
from commandline import Deconvoy

PROGRAM = """
#include <pthread.h>
#include <stdio.h>
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static void *nothing(void *unused) { return unused; }
int main(void)
{
    pthread_t thread;
    pthread_cond_signal(&cond);
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    puts("as it is");
    return 7;
}
"""


@pytest.mark.parametrize("compiler", ["cc", "musl-gcc"])
def test_a_child_of_a_served_shell_is_left_alone(
    deconvoy: Deconvoy, tmp_path: Path, compiler: str
) -> None:
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"no {compiler}: apt-get install musl-tools gcc")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run([found, "-pthread", "-o", program, source], check=True)
    done = deconvoy("run", "--", "sh", "-c", "./program; exit $?")
    assert (done.returncode, done.stdout, done.stderr) == (7, "as it is\n", "")
