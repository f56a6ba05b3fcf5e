-- What scripts find in Redis, beside what Lua has, and the function that runs one. The arguments of
-- this chunk are the functions of `struct`, and one that says why and where a script has failed.
local pack, unpack, failure = ...
local guarded = xpcall

redis, struct = {}, { pack = pack, unpack = unpack }

-- No script of ours catches errors, and those of the commands would be others than in Redis.
pcall, xpcall = nil, nil
-- Redis has none of these.
dofile, loadfile, newproxy, print = nil, nil, nil, nil

setmetatable(_G, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

-- Runs a script with these functions for its commands. Returns whether it came to its end, and its
-- result or its failure.
return function(script, call, pcall, keys, arguments)
  redis.call, redis.pcall = call, pcall
  rawset(_G, 'KEYS', keys)
  rawset(_G, 'ARGV', arguments)
  return guarded(script, failure)
end
