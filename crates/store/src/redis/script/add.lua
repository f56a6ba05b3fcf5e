-- Adds what was taken elsewhere while this server was out of reach, whether or not it fits.
--
-- KEYS: the counter, and the marker that it was reset lately: then nothing is added, since the
-- units may be from before, unless ARGV[2] is the name of that reset: they are from after it.
-- ARGV[1] ends with the numbers of that state.
local reset = call('GET', KEYS[2])
if reset and reset ~= ARGV[2] then
  return 0
end
local c = charge_on(1)
local algorithm = algorithms[c.kind]
algorithm.load(c)
if algorithm.add(c, numbers_after(1)) then
  algorithm.save(c)
end
return 1
