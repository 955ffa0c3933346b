"""Prompts: the JSONL format, its errors, the built-in sets, the hub registry without a hub."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_gen.prompts import hub_loading
from data_gen.prompts.hub_sets import HUB_SETS
from data_gen.prompts.prompts import load_prompts
from selector.engine.prompts import encode_chat
from selector.errors import UserError


def line(id="a", task="writing", content="Hello", **extra):
    row = {"id": id, "task": task, "source": "me", "licence": "MIT", "messages": [{"role": "user", "content": content}]}
    return json.dumps(row | extra, ensure_ascii=False)


def write(tmp_path, *lines):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def test_builtin_has_sixty_of_each_task_with_unique_texts():
    prompts = load_prompts(["builtin"])
    assert Counter(prompt.task for prompt in prompts) == dict.fromkeys(
        ["writing", "coding", "translation", "math_easy", "math_hard"], 60
    )
    assert len({prompt.messages[0]["content"] for prompt in prompts}) == 300
    assert all(prompt.licence == "Apache-2.0" for prompt in prompts)
    assert all("\\boxed{}" in p.messages[0]["content"] for p in prompts if p.task.startswith("math"))


def test_copying_is_a_set_of_long_texts_of_its_own():
    prompts = load_prompts(["copying"])
    assert {(prompt.task, prompt.licence) for prompt in prompts} == {("copying", "Apache-2.0")}
    texts = [prompt.messages[0]["content"] for prompt in prompts]
    assert len(set(texts)) == 8
    assert all(1400 < len(text) < 2100 for text in texts)
    assert len(load_prompts(["builtin", "copying"])) == 308


def test_per_task_takes_the_first_of_each_task():
    counts = Counter(prompt.task for prompt in load_prompts(["builtin"], 3))
    assert set(counts.values()) == {3}


def test_a_system_prompt_comes_before_prompts_that_have_none(tmp_path):
    own = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    plain, with_system = load_prompts([write(tmp_path, line(), line(id="b", messages=own))])
    assert plain.with_system("") is plain
    assert [turn["content"] for turn in plain.with_system("Be brief.").messages] == ["Be brief.", "Hello"]
    assert plain.with_system("Be brief.").digest != plain.digest
    assert with_system.with_system("Be brief.") is with_system


def test_lines_of_the_shared_sets_need_no_special_case(tmp_path):
    """The five files' format: a translation line says its languages as well."""
    tasks = ["writing", "coding", "math_easy", "math_hard"]
    lines = [line(id=f"humaneval-{task}", task=task, content=f"{task}: \\boxed{{}}, «é» 試\nend.") for task in tasks]
    lines.append(line(id="tatoeba-1", task="translation", src_lang="en", tgt_lang="fr"))
    prompts = load_prompts([write(tmp_path, *lines)], 1)
    assert [prompt.task for prompt in prompts] == [*tasks, "translation"]
    assert prompts[0].messages == ({"role": "user", "content": "writing: \\boxed{}, «é» 試\nend."},)
    assert {(prompt.source, prompt.licence) for prompt in prompts} == {("me", "MIT")}


def test_jsonl_with_extra_keys_and_line_separators(tmp_path):
    path = write(tmp_path, line(content="one two", src_lang="en", tgt_lang="fr"), "", line(id="b"))
    prompts = load_prompts([path])
    assert [prompt.id for prompt in prompts] == ["a", "b"]
    assert prompts[0].digest != prompts[1].digest


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"id": "x", ', "not JSON"),
        ("[1]", "not a JSON object"),
        (json.dumps({"id": "x", "messages": []}), "task missing"),
        (line(id=""), "id must be"),
        (line(content="  "), "prompt is empty"),
        (json.dumps({"id": "x", "task": "t", "messages": []}), "messages must be"),
        (json.dumps({"id": "x", "task": "t", "messages": [{"role": "user"}]}), "role and a content"),
        (line(), "own id"),
        ("[" * 100_000, "nested too deep"),
        (r'{"id": "x", "task": "t", "messages": [{"role": "user", "content": "a\ud800"}]}', "content has a lone"),
        (r'{"id": "\udfff", "task": "t", "messages": [{"role": "user", "content": "a"}]}', "id has a lone"),
    ],
)
def test_a_bad_line_is_named(tmp_path, bad, words):
    path = write(tmp_path, line(), bad)
    with pytest.raises(UserError, match=words) as caught:
        load_prompts([path])
    assert "prompts.jsonl, line 2" in str(caught.value)


def test_unknown_source_names_the_known_ones():
    with pytest.raises(UserError, match=r"no such file.*builtin, copying, math500"):
        load_prompts(["nothing.jsonl"])


def test_empty_file(tmp_path):
    with pytest.raises(UserError, match="no prompt"):
        load_prompts([write(tmp_path)])


def test_render_with_and_without_template():
    class Tokenizer:
        chat_template = "x"

        def apply_chat_template(self, messages, tokenize, add_generation_prompt):
            assert add_generation_prompt
            assert not tokenize
            return "<" + messages[0]["content"] + ">"

        def __call__(self, text, add_special_tokens=True):
            return SimpleNamespace(input_ids=([0] if add_special_tokens else []) + [ord(c) for c in text])

    prompt = load_prompts(["builtin"], 1)[0]
    text = prompt.messages[0]["content"]
    assert encode_chat(Tokenizer(), prompt.messages, True) == [ord(c) for c in f"<{text}>"]
    assert encode_chat(Tokenizer(), prompt.messages, False) == [0, *map(ord, text)]
    Tokenizer.chat_template = None
    with pytest.warns(UserWarning, match="no chat template"):
        assert encode_chat(Tokenizer(), prompt.messages, True) == [0, *map(ord, text)]


ROWS = {
    "HuggingFaceH4/MATH-500": [{"problem": "1+1?"}, {"problem": " "}, {"problem": "2+2?"}],
    "Hothan/OlympiadBench": [{"question": "Prove."}],
    "lighteval/code_generation_lite": [
        {"question_content": "Sort.", "starter_code": "def f():"},
        {"question_content": "Sum.", "starter_code": ""},
    ],
    "SAA-Lab/LitBench-Train": [{"prompt": "[WP] A dragon."}, {"prompt": "[WP] A dragon."}, {"prompt": "A knight."}],
    "Helsinki-NLP/opus_books": [{"translation": None}],
    "sentence-transformers/parallel-sentences-opensubtitles": [
        {"english": "This is a long enough sentence.", "non_english": "Une phrase qui est assez longue."},
        {"english": "No.", "non_english": "Non."},
        {"english": "Another sentence of some length.", "non_english": "Encore une phrase assez longue."},
    ],
}


def fake_part(part):
    rows = ROWS[part.path]
    if part.path.endswith("opus_books"):
        first, second = part.config.split("-")
        rows = [{"translation": {first: f"A {part.config} passage of a book", second: "Encore un passage d'un livre"}}]
    return iter(rows)


def test_hub_sets_are_built_from_their_columns(monkeypatch):
    monkeypatch.setattr(hub_loading, "open_part", fake_part)
    prompts = load_prompts(list(HUB_SETS))
    counts = Counter(prompt.task for prompt in prompts)
    assert counts["math_easy"] == 2
    assert counts["writing"] == 2  # the repeated prompt comes once
    assert counts["coding"] == 2
    texts = [prompt.messages[-1]["content"] for prompt in prompts]
    assert "A dragon." in texts
    assert sum("def f():" in text for text in texts) == 1
    assert sum("# YOUR CODE HERE" in text for text in texts) == 1
    assert any(text.startswith("Translate the following English text into French.") for text in texts)


@pytest.mark.parametrize("source", ["math500@abc123", "opus_books@v1"])
def test_a_pinned_set_carries_its_revision(monkeypatch, source):
    opened = []
    monkeypatch.setattr(hub_loading, "open_part", lambda part: (opened.append(part), fake_part(part))[1])
    name, _, revision = source.partition("@")
    prompts = load_prompts([source], 2)
    assert {part.revision for part in opened} == {revision}
    assert all(prompt.source.endswith(f"@{revision}") for prompt in prompts)
    assert prompts[0].id == f"{name}-00000"
    assert HUB_SETS[name].parts[0].revision is None


def test_olympiadbench_is_pinned():
    assert {part.revision[:7] for part in HUB_SETS["olympiadbench"].parts} == {"91184b5"}


@pytest.mark.parametrize(
    ("source", "words"), [("opus@abc", r"pin `opus_books` and `opus_subtitles`"), ("litbench@", "a commit or a tag")]
)
def test_a_pin_that_says_nothing_is_refused(source, words):
    with pytest.raises(UserError, match=words):
        load_prompts([source])


@pytest.mark.parametrize("parquet", [True, False])
def test_only_the_prompt_columns_are_read(tmp_path, parquet):
    """A folder laid out as on the hub: the column of hidden tests is left alone."""
    rows = [{"problem": f"{number} + 1?", "private_test_cases": "pickle"} for number in range(3)]
    if parquet:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "test-00000-of-00001.parquet")
    else:
        (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    part = replace(HUB_SETS["math500"].parts[0], path=str(tmp_path), parquet=parquet)
    found = list(hub_loading.open_part(part))
    assert sorted(row["problem"] for row in found) == ["0 + 1?", "1 + 1?", "2 + 1?"]
    assert all(set(row) == {"problem"} for row in found)


def test_hub_offline_names_the_local_alternative(monkeypatch):
    def offline(part):
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(hub_loading, "open_part", offline)
    with pytest.raises(UserError, match=r"litbench.*writing\.jsonl"):
        load_prompts(["litbench"], 5)
