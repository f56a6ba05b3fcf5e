# Images for both architectures, around the static binaries of packaging/build.sh, so that nothing
# is built or emulated here:
#
#     TAG=0.1.0 docker buildx bake --push
#
# target/image has them as out/amd64/tollgate and out/arm64/tollgate; `packaging/build.sh image`
# puts there what is in target/packages. `docker buildx bake local` builds from the sources, for
# this machine.

variable "IMAGE" { default = "tollgate" }
variable "TAG" { default = "local" }
variable "VERSION" { default = "0.1.0" }
variable "REVISION" { default = "unknown" }
variable "SOURCE" { default = "" }
variable "CREATED" { default = "" }

group "default" { targets = ["release"] }

target "labels" {
  args = { VERSION = VERSION, REVISION = REVISION }
  labels = {
    "org.opencontainers.image.source" = SOURCE
    "org.opencontainers.image.created" = CREATED
  }
}

target "release" {
  inherits = ["labels"]
  platforms = ["linux/amd64", "linux/arm64"]
  # In place of the stage that compiles.
  contexts = { build = "target/image" }
  tags = ["${IMAGE}:${TAG}"]
  attest = ["type=provenance,mode=max", "type=sbom"]
}

target "local" {
  inherits = ["labels"]
  tags = ["${IMAGE}:${TAG}"]
  output = ["type=docker"]
}
