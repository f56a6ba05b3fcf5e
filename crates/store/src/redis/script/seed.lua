-- Merges a counter's state from elsewhere, which counts the same charges.
--
-- KEYS: the counter, and the marker that it was reset lately: then nothing is merged, and 2 is
-- returned, unless the other state is from after that reset: ARGV[2] is its name then. ARGV[1] ends
-- with the numbers of the other state. Returns whether it counts more now.
local reset = call('GET', KEYS[2])
if reset and reset ~= ARGV[2] then
  return 2
end
local c = charge_on(1)
local algorithm = algorithms[c.kind]
algorithm.load(c)
local is_changed, is_more = algorithm.join(c, numbers_after(1))
if is_changed then
  algorithm.save(c)
end
return is_more and 1 or 0
