"""Images are really built here: by a docker engine and a buildah, into a registry, all processes of the tests."""
