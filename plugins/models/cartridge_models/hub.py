"""Models of the Hugging Face hub, in the hub's own shared cache."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import DownloadError, InvalidArgumentError, OfflineError
from cartridge_models import _hub
from cartridge_models.choosing import chosen
from cartridge_models.fetching import Order, fetch
from cartridge_models.hubfinding import find, list_models, model_of, remove
from cartridge_models.layout import Listing, Repository
from cartridge_models.origin import Listed, Model, ModelFile, Removed, nearest
from cartridge_models.receiving import RefusedError
from cartridge_models.remote import Patience, RemoteFile, wait
from cartridge_models.settings import is_hub_off

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.context import Context
    from cartridge_core.modelspec import HubSpec
    from cartridge_models.hubfinding import Found

__all__ = ["HubOrigin", "list_hub"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ADVICE = "set HF_HOME to another disk"
_SHOWN = 3

_ABSENT = frozenset({"repository", "revision", "no-file"})
"""Why the hub gives nothing, where that is because it has no such thing."""

_FAILURES = {
    "repository": (
        "there is no such repository, or it is private and you are not logged in; check the name, "
        "or type `hf auth login` (or set HF_TOKEN)"
    ),
    "gated": (
        "the repository is gated; ask for access at {page}, then type `hf auth login` (or set "
        "HF_TOKEN)"
    ),
    "revision": "it has no branch, tag or commit {revision}; see {page}/tree/main",
    "no-file": "no file of it is meant by include and exclude: {text}",
    "rate-limited": (
        "the hub limits how often it is asked: {text}; wait a few minutes, or type "
        "`hf auth login`: who is logged in may ask more often"
    ),
    "refused": "the hub refused: {text}",
    "network": (
        "the hub cannot be reached: {text}; check the network, the proxy and HF_ENDPOINT, or set "
        "CARTRIDGE_OFFLINE=1 to use only what is on this machine"
    ),
}


@attrs.frozen
class HubOrigin:
    """
    A repository of the hub, or some of its files.

    A model is the snapshot's folder. It is a file only where ``include`` is one glob and what is
    meant is one file, or the shards of one model: then the first of them.
    """

    spec: HubSpec
    patience: Patience

    @property
    def name(self) -> str:
        """The repository's name without its owner."""
        return self.spec.repo_id.partition("/")[2]

    @property
    def repository(self) -> str:
        """Owner and repository."""
        return self.spec.repo_id

    def find(self, context: Context) -> Model | None:
        """
        Look into the hub's cache.

        Raises:
            DownloadError: huggingface_hub is not installed.
        """
        found = self._look(context)
        return None if found is None else model_of(found, self.spec)

    def fetch(self, context: Context) -> Model:
        """
        Bring it into the hub's cache, and up to date.

        A branch or a tag is looked up each time; where the hub cannot be reached, what is here
        is taken, with a warning. A commit never changes: what is here needs no network.
        """
        found = self._look(context)
        here = found if found is not None and found.complete else None
        is_off = context.offline or is_hub_off()
        is_fixed = self.spec.revision is not None and _COMMIT.fullmatch(self.spec.revision)
        if here is not None and (is_off or (is_fixed and here.certain)):
            return model_of(here, self.spec)
        self._require_network(context, found)
        try:
            listing = self._ask(context)
            self._bring(listing, context)
        except _hub.HubRefusedError as exc:
            error = self._failure(exc)
            if here is None or exc.kind != "network":
                raise error from exc
            context.log("warning", f"{error}; taking what is here, which may be out of date")
            return model_of(here, self.spec)
        after = find(self._repository, self.spec, listing.commit)
        if after is None or not after.complete:
            msg = f"model {self.spec}: it was downloaded, and yet it is not in {self._folder}"
            raise DownloadError(msg)
        return model_of(after, self.spec)

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """Ask the hub for the list."""
        try:
            return self._list(context)
        except _hub.HubRefusedError as exc:
            raise self._failure(exc) from exc

    def is_offered(self, context: Context) -> bool:
        """Ask the hub for the list, and whether the user may have it."""
        try:
            return bool(self._list(context))
        except _hub.HubRefusedError as exc:
            if exc.kind in _ABSENT:
                return False
            raise self._failure(exc) from exc

    def remove(self, context: Context) -> Removed:
        """Remove the files that are meant, and their content where no other commit has it."""
        found = self._look(context)
        try:
            return Removed() if found is None else remove(found, self.spec)
        except OSError as exc:
            msg = f"model {self.spec}: it cannot be removed: {exc}"
            raise DownloadError(msg) from exc

    @property
    def _repository(self) -> Repository:
        return Repository(_hub.cache_folder(), self.spec.repo_id)

    @property
    def _folder(self) -> str:
        return str(_hub.cache_folder())

    def _look(self, context: Context) -> Found | None:
        context.check_cancelled()
        self._require_library()
        try:
            return find(self._repository, self.spec)
        except OSError as exc:
            msg = f"model {self.spec}: {self._folder} cannot be read: {exc}"
            raise DownloadError(msg) from exc

    def _list(self, context: Context) -> tuple[ModelFile, ...]:
        self._require_library()
        self._require_network(context, None)
        listing = self._ask(context)
        return tuple(
            ModelFile(name, listing.files[name].size_bytes) for name in self._meant(listing)
        )

    def _ask(self, context: Context) -> Listing:
        for failures in range(self.patience.attempts):
            try:
                return _hub.ask(self.spec, context.check_cancelled, self.patience.stall_s)
            except _hub.HubRefusedError as exc:
                pause_s = self.patience.pause_s * 2**failures if exc.wait_s is None else exc.wait_s
                is_over = failures + 1 == self.patience.attempts
                is_long = pause_s > self.patience.longest_pause_s
                if exc.kind != "rate-limited" or is_over or is_long:
                    raise
                context.progress(0.0, f"{exc}; asking again in {pause_s:.0f} s")
                wait(pause_s, context.check_cancelled)
        raise AssertionError

    def _meant(self, listing: Listing) -> tuple[str, ...]:
        names = chosen(listing.files, self.spec)
        if not names:
            asked = ",".join(self.spec.include).replace("*", "")
            kind = "no-file"
            text = f"it has {len(listing.files)} files, {nearest(asked, listing.files)}"
            raise _hub.HubRefusedError(kind, text)
        return names

    def _bring(self, listing: Listing, context: Context) -> None:
        """Fetch what is not here of a commit."""
        repository, commit = self._repository, listing.commit
        names = self._meant(listing)
        repository.write_listing(listing)
        if repository.commit_of(self.spec.revision) is None:
            # So that a look finds what is here of it, however this ends.
            repository.write_ref(self.spec.revision, commit)
        found = find(repository, self.spec, commit, listing)
        if found is None or not found.complete:
            here = () if found is None else found.here
            headers = _hub.request_headers()
            files = [
                self._remote(listing, name, {} if name in here else headers, is_here=name in here)
                for name in names
            ]
            try:
                fetch(self._order(listing, files), context, self.patience)
            except RefusedError as exc:
                kind = _hub.kind_of_refusal(exc.http_status, exc.code)
                raise _hub.HubRefusedError(kind, str(exc)) from exc
        repository.write_ref(self.spec.revision, commit)

    def _order(self, listing: Listing, files: list[RemoteFile]) -> Order:
        repository = self._repository

        def publish(file: RemoteFile) -> None:
            repository.link(listing.commit, file.name, file.digest)

        return Order(self.spec.repo_id, files, repository.locks, _ADVICE, publish)

    def _remote(
        self, listing: Listing, name: str, headers: dict[str, str], *, is_here: bool
    ) -> RemoteFile:
        repository, file = self._repository, listing.files[name]
        blob, pointer = repository.blob(file.digest), repository.snapshot(listing.commit) / name
        return RemoteFile(
            what=f"model {self.spec}: {name}",
            name=name,
            url=_hub.file_url(self.spec.repo_id, listing.commit, name),
            digest=file.digest,
            size_bytes=file.size_bytes,
            target=pointer if is_here else blob,
            part=repository.part(file.digest),
            headers=headers,
        )

    def _require_library(self) -> None:
        try:
            version("huggingface_hub")
        except PackageNotFoundError:
            msg = (
                f"model {self.spec}: it needs the hub's library; type `pip install huggingface_hub`"
            )
            raise DownloadError(msg) from None

    def _require_network(self, context: Context, found: Found | None) -> None:
        if context.offline or is_hub_off():
            switch = "CARTRIDGE_OFFLINE" if context.offline else "HF_HUB_OFFLINE"
            missing = () if found is None else found.missing
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            which = f" ({', '.join(missing[:_SHOWN])}{more} missing)" if missing else ""
            msg = (
                f"model {self.spec}: it is not, or not all, in {self._folder}{which}, and {switch} "
                f"forbids the network; type `cartridge models get {self.spec}` with the network "
                "once"
            )
            raise OfflineError(msg)

    def _failure(self, refusal: _hub.HubRefusedError) -> InvalidArgumentError | DownloadError:
        """Make the user's error of it."""
        if refusal.kind == "name":
            msg = f"model {self.spec}: the hub has no such names: {refusal}"
            return InvalidArgumentError(msg, arg="model_spec", value=str(self.spec))
        page = f"{_hub.endpoint()}/{self.spec.repo_id}"
        wish = f" (it asks to wait {refusal.wait_s:.0f} s)" if refusal.wait_s else ""
        text = str(refusal).removeprefix(f"model {self.spec}: ") + wish
        what = _FAILURES[refusal.kind].format(page=page, revision=self.spec.revision, text=text)
        msg = f"model {self.spec}: {what}"
        return DownloadError(msg)


def list_hub() -> Iterator[Listed]:
    """Give what the hub's shared cache holds, every commit apart."""
    yield from list_models(_hub.cache_folder())
