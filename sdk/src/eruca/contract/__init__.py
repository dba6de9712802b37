"""Define the wire: the formats, models, names, limits and errors that both sides share.

The package holds data and limits only: no I/O, no clock, no randomness. Every service and the SDK
import it.

Two libraries define JSON bodies. **msgspec** defines the structs of the hot path, where a request
costs microseconds (:mod:`.messages`, parts of :mod:`.transactions`, answers of
:mod:`.deliveries`), and those of events in the log. It decodes, checks and encodes in one step,
stops at the first fault, and keeps a JSON body as it was sent.

**pydantic** defines all other bodies, as models of :mod:`.fields`. It reports each fault with its
field, checks across fields, and reads times and URLs. A small request on the hot path may be a
model, too, such as :class:`.deliveries.DeliveryRequest`.

Each body has one definition, and both sides import it from here.
"""
