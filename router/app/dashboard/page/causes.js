/**
 * Why tokens that could have been cached were computed again: a title, what happened, and what to do about it. What
 * follows the equals sign is JSON: `warmroute explain` reads it as well.
 *
 * @type {Record<string, {title: string, meaning: string, cure: string}>}
 */
export const CAUSES = {
  "first-seen": {
    "title": "First turn",
    "meaning": "No earlier turn of the session is known, so nothing could have been cached.",
    "cure": "Nothing to do. Put what all sessions share at the very start of the prompt, so that first turns hit too."
  },
  "spread": {
    "title": "New session placed elsewhere",
    "meaning": "A first turn whose beginning another replica holds: new sessions are spread over all replicas.",
    "cure": "Goes away once every replica has seen the shared beginning. For new replicas, turn warm-up on."
  },
  "evicted": {
    "title": "Evicted before the turn came",
    "meaning": "The replica that had the history needed the memory for others before the user came back.",
    "cure": "More KV cache for each replica (memory share, KV offload, shorter prompts), or more replicas."
  },
  "restarted": {
    "title": "Replica lost its cache",
    "meaning": "The engine that had the history was restarted or put to sleep, and came back empty.",
    "cure": "Drain a replica before it is stopped, and restart one at a time. See what restarts it, if it is not you."
  },
  "spilled": {
    "title": "Spilled to another replica",
    "meaning": "Its home still has the history, but waiting there would have cost more than computing it again.",
    "cure": "The fleet is near its limit: add replicas, or see whether one is slower than the rest."
  },
  "failover": {
    "title": "Home was not available",
    "meaning": "The replica that has the history had failed or was ejected, so another one answered.",
    "cure": "Look at the replica’s state and its cause, and at that engine’s own log."
  },
  "drained": {
    "title": "Home is being drained",
    "meaning": "The replica that has the history takes no new turns, by order of an operator or of its source.",
    "cure": "Expected during a roll-out. Drain one replica at a time and give sessions time to move."
  },
  "policy": {
    "title": "Placed by another policy",
    "meaning": "The policy in force does not look at who has the history.",
    "cure": "Use the policy affinity, unless this is a comparison."
  },
  "model-changed": {
    "title": "Other model",
    "meaning": "The same conversation came for another model or adapter, and those share no cache.",
    "cure": "Stay with one model name in a conversation; give names of the same model one alias."
  },
  "salt-changed": {
    "title": "Other cache salt",
    "meaning": "The same conversation came with another cache_salt, which separates caches on purpose.",
    "cure": "Derive the salt from the tenant or user, and not from the request."
  },
  "template-changed": {
    "title": "Template changed",
    "meaning": "The chat template, its arguments or the documents before the conversation differ from the turn before.",
    "cure": "Send the same template arguments each turn, and put documents into messages at the end."
  },
  "tools-changed": {
    "title": "Tool list changed",
    "meaning": "The tools differ from those of the turn before. They come first in the prompt, so all after them is lost.",
    "cure": "Send the whole tool list every turn, and choose among them with tool_choice."
  },
  "tools-reordered": {
    "title": "Tools in another order",
    "meaning": "The same tools came in another order, so the prompt differs from its beginning on.",
    "cure": "Sort the tools by name before they are sent."
  },
  "system-changed": {
    "title": "System prompt changed",
    "meaning": "The system prompt differs from that of the turn before, so all after it is lost.",
    "cure": "Keep it word for word. What changes (mode, facts, user data) goes into the newest message."
  },
  "stamped": {
    "title": "Time stamp or id in the history",
    "meaning": "A message differs in nothing but its numbers: a time, a counter or an id that is written anew each turn.",
    "cure": "Take it out, write it once and keep it, or move it into the newest message."
  },
  "reformatted": {
    "title": "History reformatted",
    "meaning": "A message differs in nothing but white space and punctuation: something writes the history anew.",
    "cure": "Send back each message byte for byte as it was sent and answered."
  },
  "head-trimmed": {
    "title": "Oldest messages cut",
    "meaning": "The first messages after the system prompt were dropped, which shifts all that follows.",
    "cure": "Cut rarely and a lot at once, or cut whole turns from the middle; or give the model a longer context."
  },
  "edited": {
    "title": "History edited",
    "meaning": "An earlier message was changed, cut out or put in: all from there on was computed again.",
    "cure": "Append instead of editing: corrections, summaries and retrieved text go to the end."
  }
};
