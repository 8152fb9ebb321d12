"""The pictures of docs/figures that show an idea or a layout: functions that return SVG. Every
function of these modules that needs no argument is one."""

import inspect

from lab.pictures import decoding, memory, ranks, tensor_cores, threads, time


def needs_none(function):
    parameters = inspect.signature(function).parameters.values()
    return all(one.default is not one.empty for one in parameters)


PICTURES = {
    f"{name}.svg": function
    for module in (threads, memory, tensor_cores, time, decoding, ranks)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and needs_none(function)
}
