"""Benchmark tasks: functions to differentiate, each with a point and its source."""

from veenv.tasks.random import random_function
from veenv.tasks.random_family import RandomFunctions
from veenv.tasks.registry import get, list_tasks, register_task
from veenv.tasks.registry import list_tasks as list
from veenv.tasks.task import Task

__all__ = [
    "RandomFunctions",
    "Task",
    "get",
    "list",
    "list_tasks",
    "random_function",
    "register_task",
]
