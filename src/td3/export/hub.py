"""Upload an export to the Hugging Face hub."""

import importlib.util
import re

from td3.errors import ConfigError, RunError, missing_extra
from td3.export.folder import Export


def require_hub(repo_id: str) -> None:
    """Refuse what cannot be uploaded, before anything is exported: a wrong name, a missing extra, no token."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
        raise ConfigError(f"--push must be owner/name, such as anna/td3-hopper, but {repo_id!r} was given.")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise missing_extra("uploading", "hub")
    import huggingface_hub

    if not huggingface_hub.get_token():
        raise ConfigError(
            "nothing was uploaded: there is no Hugging Face token here. Log in with `hf auth login`, or set HF_TOKEN."
        )


def push(export: Export, repo_id: str, private: bool = False) -> str:
    """Upload an exported folder; returns the address of the model."""
    require_hub(repo_id)
    import huggingface_hub

    api = huggingface_hub.HfApi()
    try:
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=export.path, commit_message="Upload a TD3 agent")
    # The hub's client raises errors of several HTTP libraries and of the network: all mean that the upload failed.
    except Exception as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RunError(
            f"the upload to {repo_id} failed ({first_line}): the export itself is in {export.path}."
        ) from error
    return str(address)
