"""The image vector: which container image a component has, by versions and architecture. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from windowbox.errors import Missing
from windowbox.models import constraints

AMD64 = "amd64"
_EVERYWHERE = (AMD64, "arm64")


class ImageSource(BaseModel):
    """One entry. Fields that Gardener's own files may have besides mean nothing here."""

    model_config = ConfigDict(
        frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True, extra="ignore"
    )

    name: str = Field(min_length=1)
    ref: str = ""
    """The whole reference; it excludes repository and tag."""
    repository: str = ""
    tag: str = ""
    version: str = ""
    """For people only."""
    runtime_version: str = ""
    """Constraint on the version of the cluster that it runs in."""
    target_version: str = ""
    """Constraint on the version of the cluster that it works for."""
    architectures: tuple[str, ...] = Field((), strict=False)

    @property
    def key(self) -> tuple[str, str, str, tuple[str, ...]]:
        """The key by which an overwrite changes an entry."""
        return (self.name, self.runtime_version, self.target_version, self.architectures)

    def overwritten(self, by: Self) -> Self:
        """Field by field; what the other leaves out stays."""
        ref = by.ref or ("" if by.repository else self.ref)
        tag = "" if ref else by.tag or self.tag
        return self.model_copy(
            update={
                "ref": ref,
                "repository": "" if ref else by.repository or self.repository,
                "tag": tag,
                "version": by.version or self.version or (self.tag if tag else ""),
            }
        )

    def reference(self, target: str) -> str:
        """The image as a container names it."""
        if self.ref:
            return self.ref
        tag = self.tag or (f"v{target.removeprefix('v')}" if target else "")
        if not tag:
            return self.repository
        return f"{self.repository}{'@' if tag.startswith('sha256:') else ':'}{tag}"


class ImageVector(BaseModel):
    """All entries. The first of equals wins."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    images: tuple[ImageSource, ...] = ()

    def overwritten(self, by: Iterable[ImageSource]) -> ImageVector:
        """Entries with the same key are changed, others are added."""
        merged = {one.key: one for one in self.images}
        for one in by:
            before = merged.get(one.key)
            merged[one.key] = before.overwritten(one) if before else one
        return ImageVector(images=tuple(merged.values()))

    def image(self, name: str, *, runtime: str = "", target: str = "", architecture: str = AMD64) -> str:
        """The image of a component for these versions of clusters. Missing if there is none."""
        named = [one for one in self.images if one.name == name]
        scores = [(_score(one, runtime, target, architecture), one) for one in named]
        fitting = [(score, one) for score, one in scores if score is not None]
        if not fitting:
            raise Missing(
                f"no image {name!r} for runtime version {runtime or '-'}, target version {target or '-'} and "
                f"architecture {architecture}: add one to the overwrite of the image vector"
            )
        return max(fitting, key=lambda pair: pair[0])[1].reference(target)


def _score(source: ImageSource, runtime: str, target: str, architecture: str) -> int | None:
    """How well the entry suits; None if it does not."""
    built = source.architectures or _EVERYWHERE
    if architecture not in built:
        return None
    score = 1 if len(built) > 1 else 2
    for constraint, found in ((source.runtime_version, runtime), (source.target_version, target)):
        if not constraint or not found:
            continue
        if not constraints.matches(constraint, constraints.version(found)):
            return None
        score += 2 if constraints.is_exact(constraint) else 1
    return score


BUILT_IN = ImageVector(
    images=(
        ImageSource(
            name="cloud-controller-manager-local", repository="cloud-controller-manager-local", tag="v0.0.0"
        ),
        ImageSource(
            name="machine-controller-manager-provider-local",
            repository="machine-controller-manager-provider-local",
            tag="v0.0.0",
        ),
        ImageSource(
            name="local-path-provisioner",
            repository="gcr.io/k8s-staging-kind/local-path-provisioner",
            tag="v20240513-b9bba138",
        ),
        ImageSource(
            name="local-path-helper",
            repository="gcr.io/k8s-staging-kind/local-path-helper",
            tag="v20240213-749005b2",
        ),
    )
)
"""The first two are meant to be overwritten."""
