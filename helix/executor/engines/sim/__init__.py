"""The simulated engine: SGLang's scheduling and caching in virtual time."""

from helix.executor.engines.sim.engine import SimEngine as SimEngine
from helix.executor.engines.sim.loop import run_virtual as run_virtual
from helix.executor.engines.sim.settings import SimSettings as SimSettings
