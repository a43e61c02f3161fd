-- Writes down turns and homes. KEYS[i] belongs to operation i of ARGV[1] (msgpack); ARGV[2]: seconds for which a
-- replica is believed to hold a prefix; ARGV[3]: seconds to keep each key (msgpack).
-- {"held", replica, engine start, prompt tokens, answer tokens, rest bytes, rest check}: a replica holds this prefix.
-- {"home", replica, expected}: a session lives there now, unless another router has moved it meanwhile: compare and set.
-- Returns the homes that stay as they are: {number of the operation, replica}, ... in one flat list.
local MAX_HOLDERS = 16 -- more replicas than that hold a shared prefix because everybody does

local now = tonumber(redis.call("TIME")[1])
local ttl = tonumber(ARGV[2])
local keep = cmsgpack.unpack(ARGV[3])
local kept = {}

-- Returns the turn's end and the holders that stand in a value. Raises an error for a value that is none of ours.
local function read(data)
  local value, holders = cmsgpack.unpack(data), {}
  for _, holder in ipairs(value[5]) do
    holders[#holders + 1] = { holder[1] .. "", holder[2] + 0, holder[3] + 0 }
  end
  return { value[1] + 0, value[2] + 0, value[3] + 0, value[4] + 0 }, holders
end

local function held(number, key, operation)
  local replica, start, prompt, answer, rest, check = unpack(operation, 2)
  local holders = { { replica, start, now } }
  local readable, turn, known = pcall(read, redis.call("GET", key))
  if readable then
    for _, holder in ipairs(known) do
      if holder[1] ~= replica and holder[3] + ttl > now and #holders < MAX_HOLDERS then
        holders[#holders + 1] = holder
      end
    end
    if prompt == 0 then -- a landmark that others share ends no turn, and must not hide that one did here
      prompt, answer, rest, check = unpack(turn)
    end
  end
  redis.call("SET", key, cmsgpack.pack({ prompt, answer, rest, check, holders }), "EX", keep[number])
end

local function home(number, key, operation)
  local replica, expected = operation[2], operation[3]
  local present = redis.call("GET", key)
  if present and present ~= expected and present ~= replica then
    kept[#kept + 1] = number
    kept[#kept + 1] = present
  else
    redis.call("SET", key, replica, "EX", keep[number])
  end
end

for number, operation in ipairs(cmsgpack.unpack(ARGV[1])) do
  if operation[1] == "held" then
    held(number, KEYS[number], operation)
  else
    home(number, KEYS[number], operation)
  end
end
return kept
