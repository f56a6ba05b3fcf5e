-- Makes a counter what it was elsewhere, unless there is one or that is over.
--
-- KEYS[1]: the counter. ARGV[1] ends with the three numbers of its state.
-- Returns whether it did.
if call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local c = charge_on(1)
local algorithm = algorithms[c.kind]
if algorithm.adopt(c, unpack('<ddd', ARGV[1], 44)) <= now then
  return 0
end
algorithm.save(c)
return 1
