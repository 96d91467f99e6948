"""Types and reasons of the conditions, in one place so that they are spelt once and described once.

States and reasons of single pools are found by evidence, and stand beside it in ``core.classify``.

Ready, Reconciling and Stalled follow kstatus, which Argo CD, Flux and ``kubectl wait`` read. The others have
abnormal-true polarity except CapacityAvailable and EnginesReady; none of them makes a resource unhealthy by itself.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of ``status.conditions``."""

    READY = "Ready"
    """True when the promised units are ready, on whatever tier."""
    RECONCILING = "Reconciling"
    """True while work towards the current spec goes on."""
    STALLED = "Stalled"
    """True when nothing more will happen until a person acts."""
    CAPACITY_AVAILABLE = "CapacityAvailable"
    """True when every tier above the lowest one in use has room for what it was asked for."""
    FALLBACK_ACTIVE = "FallbackActive"
    """True when some units are served by a tier that is not the first."""
    MODEL_LOAD_SLOW = "ModelLoadSlow"
    """True when the last load of a pool took longer than its budget."""
    PROVIDER_MISMATCH = "ProviderMismatch"
    """True when a pod computes on something else than its tier asks for."""
    ENGINES_READY = "EnginesReady"
    """True when every pool that may be asked for pods has the engine that it needs. Absent where none is needed."""
    GPU_TYPES_LEFT_OUT = "GPUTypesLeftOut"
    """True when GPUs of the cluster, or of a tier's products, are too small or too old for the model, or nothing tells
    what they are. Absent otherwise."""


class Reason(StrEnum):
    """Reasons of ``status.conditions``."""

    # Ready
    ALL_UNITS_READY = "AllUnitsReady"
    """As many units are ready as were asked for."""
    UNITS_MISSING = "UnitsMissing"
    """Some units are ready, fewer than were asked for."""
    NO_UNITS_READY = "NoUnitsReady"
    """No unit is ready."""
    SCALED_TO_ZERO = "ScaledToZero"
    """``spec.replicas`` is 0: nothing is asked for, so nothing is missing."""

    # Reconciling
    UP_TO_DATE = "UpToDate"
    """All children are as the spec asks, and settled."""
    STARTING_PODS = "StartingPods"
    """Pods were asked for and are on their way."""
    ROLLING_OUT = "RollingOut"
    """Pods of an older version are being replaced."""
    MOVING_TO_LOWER_TIER = "MovingToLowerTier"
    """A lower tier is being raised for one that ran out."""
    RETURNING_TO_UPPER_TIER = "ReturningToUpperTier"
    """A tier that had run out is taking its units back."""
    WAITING_FOR_PERSON = "WaitingForPerson"
    """Nothing goes on: condition Stalled says what a person must do."""
    PAUSED = "Paused"
    """``spec.paused`` is true: children are left as they are."""

    # Stalled
    NOT_STALLED = "NotStalled"
    """Nothing needs a person."""
    INVALID_SPEC = "InvalidSpec"
    """The spec can't be served as it is; the API server should have refused it."""
    UNSUPPORTED_SOURCE = "UnsupportedSource"
    """This version of the operator can't serve from this source or family."""
    NAME_CONFLICT = "NameConflict"
    """An object with the name of a child belongs to somebody else."""
    CHILD_REFUSED = "ChildRefused"
    """The API server refused a child as invalid, for example by an admission policy."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """A ResourceQuota of the namespace forbids a child."""
    FORBIDDEN = "Forbidden"
    """The operator lacks the right to write a child."""
    MISCONFIGURED = "Misconfigured"
    """Pods can't start for a reason that lies in the spec or in an object it names; the message names it."""
    LOAD_FAILED = "LoadFailed"
    """The container runs and the model does not load, or computes elsewhere than its tier asks for."""

    ENGINE_FAILED = "EngineFailed"
    """The model can't be fetched, or an engine can't be built; the message says what to do."""

    # EnginesReady
    ALL_ENGINES_READY = "AllEnginesReady"
    """Each is in the cache, and was checked."""
    FETCHING_MODEL = "FetchingModel"
    """The model's files are on their way into the cache."""
    UNKNOWN_GPU = "UnknownGpu"
    """Nothing tells what a GPU type can do, so no engine can be built for it; the message says how to tell it."""
    BUILDING_ENGINES = "BuildingEngines"
    """Engines are being built, or wait for their turn; lower tiers serve meanwhile."""

    # GPUTypesLeftOut
    UNSUPPORTED_TYPES = "UnsupportedTypes"
    """The message names each type, or each node without one, and the figures."""

    # CapacityAvailable, FallbackActive
    ROOM_FOR_ALL = "RoomForAll"
    """Every pool got what it was asked for."""
    SHORTAGE = "Shortage"
    """A pool did not get what it was asked for; the message names it and why."""
    FIRST_TIER_SERVES = "FirstTierServes"
    """All units are on the first tier."""
    LOWER_TIER_SERVES = "LowerTierServes"
    """Some units are on a lower tier; the message names it, how many and since when."""

    # ModelLoadSlow, ProviderMismatch
    WITHIN_BUDGET = "WithinBudget"
    """Every load stayed within its budget."""
    OVER_BUDGET = "OverBudget"
    """A load took longer than its budget; the message names the pool and both figures."""
    NOT_REPORTED = "NotReported"
    """No pod has reported yet."""
    PROVIDER_MISMATCH = "ProviderMismatch"
    """A runtime computes on something else than its tier asks for; the message names the pool and both."""
    AS_ASKED = "AsAsked"
    """Every pod that reports computes on what its tier asks for."""
