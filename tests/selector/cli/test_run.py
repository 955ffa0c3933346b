"""What a run of an earlier version left behind goes on; see also `test_pipeline`."""

import json

import pytest
from rich.console import Console

from data_gen.engines.local import LocalEngine
from data_gen.pipeline import open_engine
from selector.artifacts.writing import as_json
from selector.cli.run import claim
from selector.errors import UserError
from tests.support.small_runs import small_config, table_pair


def test_a_chain_of_an_earlier_version_goes_on(tmp_path, prompt_file):
    """Settings that its configuration does not know have their defaults."""
    config = small_config([prompt_file])
    stored = as_json(config)
    del stored["generate"]["system_prompt"]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    claim(config, tmp_path)
    with pytest.raises(UserError, match=r"generate.system_prompt is '' there and 'Be brief.' here"):
        claim(small_config([prompt_file], system_prompt="Be brief."), tmp_path)


def test_the_local_engine_is_the_default_and_takes_a_loaded_pair(prompt_file):
    pair = table_pair()
    with open_engine(small_config([prompt_file]), Console(quiet=True), pair) as engine:
        assert isinstance(engine, LocalEngine)
        assert engine.facts().hidden_sizes == {"target": 3, "draft": 3}
        assert engine.facts().dtype == "float32"
