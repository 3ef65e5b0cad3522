"""Variants in a configuration: names, settings of one variant, and pairs that exclude each other."""

import pytest

from td3 import variant_settings
from td3.config import resolve
from td3.errors import ConfigError


def test_names_are_listed_from_text_or_several():
    for given in ("no-delay,no-twin", ["no-delay", "no-twin"], ("no-delay,no-twin",)):
        assert resolve("Rail-v0", variant=given).variant == ("no-delay", "no-twin")


def test_a_pair_that_excludes_each_other_is_refused(monkeypatch):
    monkeypatch.setattr(variant_settings, "EXCLUDED", (("no-delay", "ddpg", "both do the same"),))
    resolve("Rail-v0", variant="ddpg")
    with pytest.raises(ConfigError, match=r"no-delay and ddpg cannot be used together \(both do the same\)"):
        resolve("Rail-v0", variant="ddpg,no-twin,no-delay")


def test_a_setting_of_a_variant_that_is_not_used_is_refused(monkeypatch):
    monkeypatch.setattr(variant_settings, "OWN_SETTINGS", {"tau": "no-twin"})
    resolve("Rail-v0")
    resolve("Rail-v0", variant="no-twin", tau=0.5)
    with pytest.raises(ConfigError, match=r"tau.* is 0.5, but only the variant no-twin reads it: give --variant"):
        resolve("Rail-v0", variant="no-delay", tau=0.5)
