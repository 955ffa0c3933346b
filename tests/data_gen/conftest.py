"""Prompts on disk."""

import json

import pytest


@pytest.fixture
def prompt_file(tmp_path):
    """Six prompts of two tasks."""
    path = tmp_path / "six.jsonl"
    lines = [
        {"id": f"{task}-{i}", "task": task, "messages": [{"role": "user", "content": f"{task} text {i * i}"}]}
        for task in ("writing", "coding")
        for i in range(3)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return str(path)
