-- Replaces a value by one that was made in knowledge of it: compare and set.
-- KEYS[1]: the value's key. ARGV[1]: SHA-1 of the value that the caller knows. ARGV[2]: the new value, or ""
-- to leave it. ARGV[3]: seconds to keep.
-- Returns the value if it is another one than the caller knows, and then leaves it as it is; else nil.
local present = redis.pcall("GET", KEYS[1])
if type(present) ~= "string" then -- there is none, or one that is none of ours
  present = ""
end
if redis.sha1hex(present) ~= ARGV[1] then
  return present
end
if ARGV[2] ~= "" then
  redis.call("SET", KEYS[1], ARGV[2], "EX", ARGV[3])
end
return false
