-- Adds what was taken elsewhere while this server was out of reach, whether or not it fits.
--
-- KEYS[1]: the counter. ARGV[1] ends with the numbers of that state.
local c = charge_on(1)
local algorithm = algorithms[c.kind]
algorithm.load(c)
if algorithm.add(c, numbers_after(1)) then
  algorithm.save(c)
end
return 1
