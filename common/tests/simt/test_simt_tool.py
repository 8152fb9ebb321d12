"""simt-cuda, which is scripts/simt, as a tool of its own: what it takes, and what it makes."""

import pytest
from cuda_on_cpu import SimtError, nvcc_options


@pytest.mark.parametrize(
    "given, kept",
    [
        ("-O3 -arch=sm_80 -std c++17 -lineinfo a.cu --use_fast_math -t4 -m64", "a.cu"),
        ("-gencode arch=compute_80,code=sm_80 -Xptxas -v -o a a.cu --extended-lambda", "a.cu"),
        ("-lcublas -lm -L lib -l cudart,foo", "-l m -L lib -l foo"),
        ("-isystem a,b --define-macro=X=1,2 -I c -DY", "-I a -I b -D X=1,2 -I c -DY"),
        ("-include x.h -U NDEBUG -Xcompiler -Wall,-DZ", "-include x.h -U NDEBUG -DZ"),
        ("--schedule reverse --launches 0 -timeout", "--schedule reverse --launches 0 -timeout"),
    ],
)
def test_options_of_nvcc(given, kept):
    assert [*nvcc_options.taken(given.split())] == kept.split()


@pytest.mark.parametrize(
    "given, said",
    [
        ("-ptx", "nvcc's option -ptx: makes a file and no run"),
        ("--run-args x", "nvcc's option --run-args: arguments of the program come behind --"),
        ("--options-file=x", "nvcc's option --options-file=x: options are taken from the command"),
        ("a.cu -arch", "nvcc's option -arch needs a value"),
    ],
)
def test_options_of_nvcc_that_cannot_be(given, said):
    with pytest.raises(SimtError) as error:
        [*nvcc_options.taken(given.split())]
    assert str(error.value).startswith(said)
